"""The one search behind every face: two legs, fusion on scores, exact words first.

query -> wanted words, phrases, exclusions
      -> lexical candidates (BM25) + vector candidates (exact cosine)
      -> BM25, cosine and late interaction of every candidate, fused; a literal match counts most
      -> the best twenty once more, by the sentence encoder
      -> copies collapsed, at most three hits a session
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from mempalace import hits, ranking
from mempalace.chunk import Kind
from mempalace.errors import UsageError
from mempalace.formats import registry as formats
from mempalace.model import Role
from mempalace.palace.lexical import Restriction
from mempalace.palace.reader import PalaceReader
from mempalace.query import ALL, INCLUDES, SCOPES, Filters, SearchResults, parse_query
from mempalace.ranking import Candidate
from mempalace.scoring import Scorer
from mempalace.values import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CANDIDATES = 60
_PHRASE_CANDIDATES = 400
_MOST_CANDIDATES = 4_000
_MOST_ASKED = 250_000  # of a leg, to see beyond copies
_COPIES = 2
_MOST_SIMILAR = 3
_MOST_TYPOS = 2
_ALIKE = 0.7

Leg = Callable[[int], dict[int, float]]


class Reader(PalaceReader):
    """A palace open for searching."""

    def search(
        self,
        query: str,
        limit: int = 10,
        filters: Filters | None = None,
        *,
        lexical_only: bool = False,
        per_session: int | None = ranking.MOST_PER_SESSION,
        context: int = 0,
    ) -> SearchResults:
        """The best `limit` hits, at most `per_session` of one session (None: any number).

        `context` is how many messages before and after each hit come with it. Raises UsageError, AmbiguousId,
        NotFound, PalaceDamaged, ModelError.
        """
        if limit < 1:
            raise UsageError(f"the limit must be at least 1, not {limit}")
        with self.at_one_moment():
            return _Search(self, query, limit, filters or Filters(), lexical_only, per_session).run(context)


class _Search:
    """One search."""

    def __init__(
        self,
        reader: Reader,
        query: str,
        limit: int,
        filters: Filters,
        lexical_only: bool,
        per_session: int | None,
    ) -> None:
        self.reader = reader
        self.catalog = reader.catalog
        self.query = query
        self.limit = limit
        self.filters = filters
        self.lexical_only = lexical_only
        self.most = limit if filters.session or per_session is None else per_session
        self.wanted = parse_query(query)
        self.allowed = self._restriction()
        included = [kind for kind in self.allowed.kinds or Kind if kind != Kind.DIALOGUE]
        self.scorer = Scorer(reader, query, self.wanted, filters.role, included, lexical_only=lexical_only)
        self.indexes: dict[str, None] = {}  # those that answered, in their order

    def run(self, context: int) -> SearchResults:
        kept = self._candidates()
        return SearchResults(
            query=self.query,
            filters=self.filters,
            indexes=list(self.indexes),
            results=hits.hits(self.catalog, kept, self.wanted, context, self.allowed.kinds),
            hidden=self._hidden(),
            terms=self._terms(),
            embedded=self.reader.embedded,
            similar=self._similar(kept),
            behind=self.reader.behind,
        )

    def _candidates(self) -> list[Candidate]:
        """The hits: from more and more candidates, while copies and full sessions leave too few of them."""
        depth = max(_PHRASE_CANDIDATES if self.wanted.phrases else CANDIDATES, 2 * self.limit)
        is_first = True
        while True:
            self.indexes = {}
            lexical, vector = (
                leg(depth) if is_first else self._without_copies(leg, depth) for leg in (self._lexical, self._vector)
            )
            candidates = self._load({**dict.fromkeys(lexical), **dict.fromkeys(vector)})
            if self.wanted.excluded:
                candidates = self._without_excluded(candidates)
            if self.scorer.score(candidates, lexical, vectors="vectors" in self.indexes):
                self.indexes["rerank"] = None
            kept = ranking.select(
                candidates, self.wanted, self.limit, self.most, lambda one: hits.ident(self.catalog, one, self.wanted)
            )
            found_all = len(lexical) < depth and len(vector) < depth
            if len(kept) == self.limit or found_all or (depth >= _MOST_CANDIDATES and not is_first):
                return kept
            depth, is_first = max(depth, min(4 * depth, _MOST_CANDIDATES)), False

    def _without_copies(self, leg: Leg, depth: int) -> dict[int, float]:
        """What a leg finds, of chunks with the same words the latest two: thousands of them would hide all else."""
        asked = depth
        while True:
            found = leg(asked)
            latest: dict[bytes, list[tuple[float, int]]] = {}
            for chunk, words, moment in self.catalog.rows_in(
                "SELECT c.id, t.words, COALESCE(c.time, 0) FROM chunks c JOIN texts t ON t.id = c.text"
                " WHERE c.id IN (?)",
                found,
            ):
                latest.setdefault(words, []).append((moment, chunk))
            kept = {chunk for chunks in latest.values() for _, chunk in sorted(chunks)[-_COPIES:]}
            if len(kept) >= depth or len(found) < asked or asked >= _MOST_ASKED:
                return dict(islice(((chunk, score) for chunk, score in found.items() if chunk in kept), depth))
            asked *= 4

    # --- candidates -----------------------------------------------------------------------------------------

    def _restriction(self) -> Restriction:
        filters = self.filters
        everything = ALL in filters.include
        if filters.role is not None and filters.role not in set(Role):
            raise UsageError(f"there is no role {filters.role!r}", hint=f"one of: {', '.join(Role)}")
        unknown = set(filters.include) - set(INCLUDES) - set(SCOPES) - {ALL}
        if unknown:
            known = ", ".join([*INCLUDES, *SCOPES, ALL])
            raise UsageError(f"cannot include {', '.join(sorted(unknown))}", hint=f"one of: {known}")
        kinds = [str(Kind.DIALOGUE)] + [kind for name in filters.include for kind in INCLUDES.get(name, ())]
        scopes = ["main"] + [name for name in filters.include if name in SCOPES]
        session = None if filters.session is None else self.reader.find_session(clean(filters.session))
        return Restriction(
            kinds=() if everything else tuple(kinds),
            scopes=() if everything or session is not None else tuple(scopes),
            formats=() if filters.tool is None else _formats(filters.tool),
            projects=() if filters.project is None else (_without_slash(clean(filters.project)),),
            wings=() if filters.wing is None else (clean(filters.wing),),
            roles=() if filters.role is None else (filters.role,),
            sessions=() if session is None else (session,),
            since=None if filters.since is None else filters.since.timestamp(),
            until=None if filters.until is None else filters.until.timestamp(),
        )

    def _lexical(self, depth: int) -> dict[int, float]:
        index = self.reader.lexical
        if index is None:
            return {}
        self.indexes["lexical"] = None
        kinds = self.allowed.kinds
        if kinds == (Kind.DIALOGUE,):
            return index.search(self.wanted, self.allowed, depth)
        # Neither dialogue nor what was asked for beside it may crowd out the other.
        others = tuple(kind for kind in (kinds or tuple(map(str, Kind))) if kind != Kind.DIALOGUE)
        found = index.search(self.wanted, replace(self.allowed, kinds=others), depth)
        return {**index.search(self.wanted, replace(self.allowed, kinds=(str(Kind.DIALOGUE),)), depth), **found}

    def _vector(self, depth: int) -> dict[int, float]:
        """Chunks by exact cosine. Phrases are literal: then only what the lexical index found counts."""
        if self.lexical_only or self.wanted.phrases or (Kind.DIALOGUE not in self.allowed.kinds and self.allowed.kinds):
            return {}
        query = self.scorer.query_vector if self.reader.has_vectors else None
        if query is None:
            return {}
        self.indexes["vectors"] = None
        if self._is_narrow():
            return self._nearest_allowed(query, depth)
        # Several chunks may share a text, and texts may be out of scope: ask for more until there are enough.
        asked = 4 * depth
        while True:
            scores = self.reader.nearest(query, asked)
            found = self.catalog.rows_in(
                "SELECT c.id, c.text, s.kind FROM chunks c JOIN sessions s ON s.id = c.session WHERE c.text IN (?)",
                scores,
            )
            allowed = self.allowed.scopes
            scored = {chunk: scores[text] for chunk, text, scope in found if not allowed or scope in allowed}
            if len(scored) >= depth or len(scores) < asked:
                return dict(sorted(scored.items(), key=lambda item: (-item[1], item[0]))[:depth])
            asked *= 4

    def _is_narrow(self) -> bool:
        allowed = self.allowed
        few = allowed.formats, allowed.projects, allowed.wings, allowed.roles, allowed.sessions
        return any(few) or allowed.since is not None or allowed.until is not None

    def _nearest_allowed(self, query: NDArray[np.float32], limit: int) -> dict[int, float]:
        """The nearest of the dialogue chunks that the filters allow."""
        allowed = self.allowed
        sessions = self._sessions_allowed()
        table = self.reader.dialogue_of(sessions)
        mask = table.allowed(sessions, allowed.roles, allowed.since, allowed.until)
        return self.reader.nearest_of(query, table.chunks[mask], table.texts[mask], limit)

    def _sessions_allowed(self) -> list[int]:
        """The sessions that the filters allow."""
        allowed = self.allowed
        parts, values = ["1"], list[Any]()
        for column, names in (("kind", allowed.scopes), ("format", allowed.formats), ("id", allowed.sessions)):
            if names:
                parts.append(f"{column} IN ({','.join('?' * len(names))})")
                values += list(names)
        for project in allowed.projects:
            parts.append("(project = ? OR project_name = ?)")
            values += [project, project]
        for wing in allowed.wings:
            parts.append("COALESCE(wing, project_name) = ?")
            values.append(wing)
        return [
            int(row[0]) for row in self.catalog.rows(f"SELECT id FROM sessions WHERE {' AND '.join(parts)}", *values)
        ]

    def _load(self, chunks: Iterable[int]) -> list[Candidate]:
        rows = self.catalog.rows_in(
            "SELECT c.id, c.uid, c.session, c.kind, COALESCE(c.time, 0), c.text, t.words, t.body, c.spans"
            " FROM chunks c JOIN texts t ON t.id = c.text WHERE c.id IN (?)",
            chunks,
        )
        found = [Candidate(*row) for row in rows]
        for one in found:
            one.role = self.filters.role
        return self._within_time(found)

    def _within_time(self, candidates: list[Candidate]) -> list[Candidate]:
        """With a span of time, only messages of that time may match: a chunk may hold others, too."""
        since, until = self.allowed.since, self.allowed.until
        if since is None and until is None:
            return candidates
        first, end = -math.inf if since is None else since, math.inf if until is None else until
        times = self.catalog.rows_in(
            "SELECT id, time, last FROM chunks WHERE id IN (?)", [one.chunk for one in candidates]
        )
        whole = {chunk for chunk, start, last in times if start is not None and first <= start and last < end}
        for one in candidates:
            if one.chunk in whole or not one.spans:
                continue
            messages = [span[2] for span in one.spans]
            moment: float | None = one.time or None  # of a message without a time: that of the one before it
            one.messages = set[int]()
            for seq, said in self.catalog.rows(
                "SELECT seq, time FROM messages WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq",
                one.session,
                min(messages),
                max(messages),
            ):
                moment = moment if said is None else said
                if moment is not None and first <= moment < end:
                    one.messages.add(seq)
            one.__dict__.pop("spans")
        return [one for one in candidates if one.spans]

    def _without_excluded(self, candidates: list[Candidate]) -> list[Candidate]:
        """Without those that say an excluded word, but for those that have the whole query as it stands."""
        words, whole = [ranking.fold(word) for word in self.wanted.excluded], ranking.fold(self.query)
        return [
            one
            for one in candidates
            if not any(ranking.has_word(one.spoken, word) for word in words) or whole in one.spoken
        ]

    # --- what else is told --------------------------------------------------------------------------------

    def _hidden(self) -> dict[str, int]:
        """How many chunks outside of what may be found have all the words, by what would include them."""
        index = self.reader.lexical
        if index is None or ALL in self.filters.include or not (self.allowed.kinds or self.allowed.scopes):
            return {}
        places = {name: replace(self.allowed, kinds=kinds) for name, kinds in INCLUDES.items()}
        if self.allowed.scopes:
            places |= {name: replace(self.allowed, scopes=(name,)) for name in SCOPES}
        return index.counts(
            self.wanted, {name: place for name, place in places.items() if name not in self.filters.include}
        )

    def _similar(self, kept: list[Candidate]) -> dict[str, list[str]]:
        """For each word of the query that no text has: the words of the results that are like it."""
        index = self.reader.lexical
        unknown = index.unknown(self.wanted.words) if index is not None else []
        if not unknown:
            return {}
        from difflib import get_close_matches

        words = {word for one in kept for word in re.findall(r"\w+", one.body.casefold())}
        found = {}
        for word in unknown:
            holding = sorted((other for other in words if word in other), key=lambda other: (len(other), other))
            near = sorted(other for other in words if abs(len(other) - len(word)) <= _MOST_TYPOS)
            like = holding[:_MOST_SIMILAR] or get_close_matches(word, near, _MOST_SIMILAR, _ALIKE)
            if like:
                found[word] = like
        return found

    def _terms(self) -> list[str]:
        words = re.findall(r"[\w./:@-]*\w", self.wanted.words)
        return sorted({*words, *self.wanted.phrases}, key=lambda word: (-len(word), word))


def _without_slash(project: str) -> str:
    """A path as the shell completes it may end with a slash."""
    return project.rstrip("/\\") or project


def _formats(tool: str) -> tuple[str, ...]:
    """The formats that a name means: itself, or those that begin with it."""
    if formats.find(tool) is not None:
        return (tool,)
    names = formats.default().names()
    found = tuple(name for name in names if name.startswith(tool.lower()))
    if not found:
        raise UsageError(f"there is no tool named {tool!r}", hint=f"one of: {', '.join(names)}")
    return found
