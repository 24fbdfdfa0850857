"""The one search behind every face: two legs, fusion on scores, exact words first.

query -> wanted words, phrases, exclusions
      -> lexical candidates (BM25) + vector candidates (exact cosine)
      -> both scores for every candidate, fused; a literal match counts most
      -> copies collapsed, at most three hits a session
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from mempalace import embedding, ranking
from mempalace.errors import UsageError
from mempalace.formats import registry as formats
from mempalace.model import Session, SessionMetadata
from mempalace.model_data import format_time
from mempalace.palace.catalog import path_of
from mempalace.palace.lexical import Restriction, Wanted
from mempalace.palace.reader import PalaceReader
from mempalace.query import ALL, INCLUDES, SCOPES, Filters, Hit, SearchResults, parse_query
from mempalace.ranking import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CANDIDATES = 60
_PHRASE_CANDIDATES = 400
_MOST_CANDIDATES = 4_000
_HASH_BYTES = 16


class Reader(PalaceReader):
    """A palace open for searching."""

    def search(
        self, query: str, limit: int = 10, filters: Filters | None = None, *, lexical_only: bool = False
    ) -> SearchResults:
        """The best `limit` hits. Raises UsageError, AmbiguousId, NotFound, PalaceDamaged, ModelError."""
        if limit < 1:
            raise UsageError(f"the limit must be at least 1, not {limit}")
        self.refresh()
        return _Search(self, query, limit, filters or Filters(), lexical_only).run()


class _Search:
    """One search."""

    def __init__(self, reader: Reader, query: str, limit: int, filters: Filters, lexical_only: bool) -> None:
        self.reader = reader
        self.catalog = reader.catalog
        self.query = query
        self.limit = limit
        self.filters = filters
        self.lexical_only = lexical_only
        self.wanted = parse_query(query)
        self.allowed = self._restriction()
        self.indexes: list[str] = []

    def run(self) -> SearchResults:
        kept = self._candidates()
        chunks = self.catalog.row("SELECT MAX(id) FROM chunks")[0] or 0
        return SearchResults(
            query=self.query,
            filters=self.filters,
            indexes=self.indexes,
            results=[self._hit(rank, one) for rank, one in enumerate(kept, 1)],
            hidden=self._hidden(),
            terms=self._terms(),
            embedded=self._embedded(),
            behind=max(0, chunks - int(self.catalog.get("lexical_through", "0") or 0)),
        )

    def _candidates(self) -> list[Candidate]:
        """The hits: from more and more candidates, while copies and full sessions leave too few of them."""
        most = self.limit if self.filters.session else ranking.MOST_PER_SESSION
        depth = max(_PHRASE_CANDIDATES if self.wanted.phrases else CANDIDATES, 2 * self.limit)
        while True:
            self.indexes = []
            lexical = self._lexical(depth)
            vector = {} if self.lexical_only else self._vector(depth)
            candidates = self._load({**dict.fromkeys(lexical), **dict.fromkeys(vector)})
            if self.wanted.excluded:
                candidates = self._without_excluded(candidates)
            self._score(candidates, lexical, vector)
            kept = ranking.select(candidates, self.wanted, self.limit, most, self._ident)
            found_all = len(lexical) < depth and len(vector) < depth
            if len(kept) == self.limit or found_all or depth >= _MOST_CANDIDATES:
                return kept
            depth *= 4

    # --- candidates -----------------------------------------------------------------------------------------

    def _restriction(self) -> Restriction:
        filters = self.filters
        everything = ALL in filters.include
        unknown = set(filters.include) - set(INCLUDES) - set(SCOPES) - {ALL}
        if unknown:
            known = ", ".join([*INCLUDES, *SCOPES, ALL])
            raise UsageError(f"cannot include {', '.join(sorted(unknown))}", hint=f"one of: {known}")
        kinds = ["dialogue"] + [kind for name in filters.include for kind in INCLUDES.get(name, ())]
        scopes = ["main"] + [name for name in filters.include if name in SCOPES]
        session = None if filters.session is None else self.reader.find_session(filters.session)
        return Restriction(
            kinds=() if everything else tuple(kinds),
            scopes=() if everything or session is not None else tuple(scopes),
            formats=() if filters.tool is None else _formats(filters.tool),
            projects=() if filters.project is None else (filters.project,),
            wings=() if filters.wing is None else (filters.wing,),
            roles=() if filters.role is None else (filters.role,),
            sessions=() if session is None else (session,),
            since=None if filters.since is None else filters.since.timestamp(),
            until=None if filters.until is None else filters.until.timestamp(),
        )

    def _lexical(self, depth: int) -> dict[int, float]:
        index = self.reader.lexical
        if index is None:
            return {}
        self.indexes.append("lexical")
        return index.search(self.wanted, self.allowed, depth).scores

    def _vector(self, depth: int) -> dict[int, float]:
        """Chunks by exact cosine. Phrases are literal: then only what the lexical index found counts."""
        if self.wanted.phrases or ("dialogue" not in self.allowed.kinds and self.allowed.kinds):
            return {}
        query = self._query_vector if self.reader.has_vectors else None
        if query is None:
            return {}
        self.indexes.append("vectors")
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
        where, values = self._where()
        rows = self.catalog.rows(
            "SELECT c.id, c.text FROM chunks c JOIN sessions s ON s.id = c.session"
            f" WHERE c.kind = 'dialogue' AND {where} ORDER BY c.id",
            *values,
        )
        scores = self.reader.cosines(sorted({text for _, text in rows}), query)
        chunks = {chunk: scores[text] for chunk, text in rows if text in scores}
        return dict(sorted(chunks.items(), key=lambda item: (-item[1], item[0]))[:limit])

    def _where(self) -> tuple[str, list[Any]]:
        """The restriction as SQL over chunks c and sessions s."""
        allowed = self.allowed
        parts, values = ["1"], []
        for column, names in (("s.kind", allowed.scopes), ("s.format", allowed.formats), ("s.id", allowed.sessions)):
            if names:
                parts.append(f"{column} IN ({','.join('?' * len(names))})")
                values += list(names)
        for project in allowed.projects:
            parts.append("(s.project = ? OR s.project_name = ?)")
            values += [project, project]
        for wing in allowed.wings:
            parts.append("COALESCE(s.wing, s.project_name) = ?")
            values.append(wing)
        for role in allowed.roles:
            parts.append("instr(c.spans, ?) > 0")
            values.append(f'"{role}"')
        if allowed.since is not None:
            parts.append("c.last >= ?")
            values.append(allowed.since)
        if allowed.until is not None:
            parts.append("c.time < ?")
            values.append(allowed.until)
        return " AND ".join(parts), values

    @cached_property
    def _query_vector(self) -> NDArray[np.float32] | None:
        vector = embedding.default().embed([self.wanted.words])[0]
        return vector if vector.any() else None

    def _load(self, chunks: Iterable[int]) -> list[Candidate]:
        rows = self.catalog.rows_in(
            "SELECT c.id, c.uid, c.session, COALESCE(c.time, 0), c.text, t.words, t.body, c.spans"
            " FROM chunks c JOIN texts t ON t.id = c.text WHERE c.id IN (?)",
            chunks,
        )
        return [Candidate.of(row, self.filters.role) for row in rows]

    def _without_excluded(self, candidates: list[Candidate]) -> list[Candidate]:
        """Drop what has an excluded word, but keep (and add) what has the whole query literally."""
        index = self.reader.lexical
        if index is None:
            return candidates
        as_it_stands = index.search(Wanted(phrases=(self.query,)), self.allowed, CANDIDATES).scores
        needle = ranking.fold(self.query)
        literal = [one for one in self._load(as_it_stands) if needle in one.spoken]
        kept = {one.chunk: one for one in literal}
        here = Restriction(chunks=tuple(one.chunk for one in candidates))
        dropped: set[int] = set()
        for word in self.wanted.excluded:
            dropped |= index.search(Wanted(phrases=(word,)), here, len(candidates) or 1).scores.keys()
        return [*kept.values(), *(one for one in candidates if one.chunk not in kept and one.chunk not in dropped)]

    def _score(self, candidates: list[Candidate], lexical: dict[int, float], vector: dict[int, float]) -> None:
        """Score every candidate by both legs, whichever found it."""
        index = self.reader.lexical
        missing = tuple(one.chunk for one in candidates if one.chunk not in lexical)
        if missing and index is not None:
            lexical = {**lexical, **index.search(self.wanted, Restriction(chunks=missing), len(missing)).scores}
        cosines = self._cosines(candidates) if "vectors" in self.indexes else {}
        if self.filters.role is not None and index is not None:
            lexical = self._of_role(candidates, lexical)
        ranking.score(candidates, self.query, self.wanted, lexical, cosines)

    def _cosines(self, candidates: list[Candidate]) -> dict[int, float]:
        """The cosine of each candidate's text; if a role was asked for, of what that role says in it."""
        query = self._query_vector
        if query is None:
            return {}
        if self.filters.role is None:
            return self.reader.cosines(sorted({one.text for one in candidates}), query)
        scores = embedding.default().embed([one.said for one in candidates]) @ query
        return {one.text: float(score) for one, score in zip(candidates, scores, strict=True)}

    def _of_role(self, candidates: list[Candidate], lexical: dict[int, float]) -> dict[int, float]:
        """Lexical scores by the share of the matching words that the role itself says."""
        index = self.reader.lexical
        assert index is not None
        wanted = index.stems(self.query)
        scores: dict[int, float] = {}
        for one in candidates:
            matching = wanted & index.stems(one.body)
            share = len(matching & index.stems(one.said)) / len(matching) if matching else 0.0
            scores[one.chunk] = lexical.get(one.chunk, 0.0) * share
        return scores

    # --- hits -----------------------------------------------------------------------------------------------

    def _hit(self, rank: int, one: Candidate) -> Hit:
        start, end, message, role, origin = ranking.best_span(one, self.wanted)
        row = self.catalog.row(
            "SELECT key, parent_key, format, project, title, metadata FROM sessions WHERE id = ?", one.session
        )
        key, parent, format, project, title, metadata = row
        said = self.catalog.row(
            "SELECT m.id, m.time, m.line, m.name, s.path FROM messages m JOIN sources s ON s.id = m.source"
            " WHERE m.session = ? AND m.seq = ?",
            one.session,
            message,
        )
        message_id, moment, line, name, path = said if said is not None else (None, one.time or None, None, None, "")
        path = self._where_it_is(one.session, path)
        return Hit(
            rank=rank,
            score=round(one.score, 6),
            scores={"lexical": one.lexical, "vector": one.vector, "late": None, "rerank": None},
            chunk_id=one.uid,
            session_id=key,
            message_id=message_id,
            parent_session_id=parent,
            format=format,
            project=project,
            title=title,
            role=role,
            speaker=name,
            origin=origin,
            timestamp=None if moment is None else format_time(datetime.fromtimestamp(moment, UTC)),
            text=one.body.rstrip("\n"),
            match=(start, end),
            path=path,
            line=line,
            source_gone=not os.path.exists(path_of(path)),
            copies=self._copies(one),
            resume=_resume(path_of(path), format, project, orjson.loads(metadata), parent),
        )

    def _where_it_is(self, session: int, path: str) -> str:
        """The path of a source, or of another that holds the session, if it was moved."""
        if os.path.exists(path_of(path)):
            return path
        others = self.catalog.rows(
            "SELECT s.path FROM session_sources h JOIN sources s ON s.id = h.source WHERE h.session = ?"
            " ORDER BY s.mined_at DESC",
            session,
        )
        return next((str(row[0]) for row in others if os.path.exists(path_of(row[0]))), path)

    def _ident(self, one: Candidate) -> bytes:
        """The identity of a candidate's best-matching message and of its words: a fork has the same."""
        span = ranking.best_span(one, self.wanted)
        if not ranking.has_a_word(one, span, self.wanted):
            return one.uid.encode()  # found by its meaning: no message of it can stand for it
        message = span[2]
        row = self.catalog.row("SELECT ident, hash FROM messages WHERE session = ? AND seq = ?", one.session, message)
        return bytes(row[0]) + bytes(row[1]) if row is not None else one.words

    def _copies(self, one: Candidate) -> list[str]:
        """The ids of the other sessions that hold the same text, or the same message."""
        ident = self._ident(one)
        rows = self.catalog.rows(
            "SELECT s.key FROM texts t JOIN chunks c ON c.text = t.id JOIN sessions s ON s.id = c.session"
            " WHERE t.words = ? AND s.id <> ?"
            " UNION SELECT s.key FROM messages m JOIN sessions s ON s.id = m.session WHERE m.ident = ?"
            " AND m.hash = ? AND s.id <> ? ORDER BY 1",
            one.words,
            one.session,
            ident[:_HASH_BYTES],
            ident[_HASH_BYTES:],
            one.session,
        )
        return [str(row[0]) for row in rows]

    def _hidden(self) -> dict[str, int]:
        """How many chunks outside of what may be found have all the words, by what would include them."""
        index = self.reader.lexical
        if index is None or ALL in self.filters.include or not (self.allowed.kinds or self.allowed.scopes):
            return {}
        found: dict[str, int] = {}
        for name, kinds in INCLUDES.items():
            if name not in self.filters.include:
                found[name] = index.count_all(self.wanted, replace(self.allowed, kinds=kinds))
        for name in SCOPES:
            if name not in self.filters.include and self.allowed.scopes:
                found[name] = index.count_all(self.wanted, replace(self.allowed, scopes=(name,)))
        return {name: count for name, count in found.items() if count}

    def _terms(self) -> list[str]:
        words = re.findall(r"[\w./:@-]*\w", self.wanted.words)
        return sorted({*words, *self.wanted.phrases}, key=len, reverse=True)

    def _embedded(self) -> float:
        queued = self.catalog.count("embed_queue")
        done = self.catalog.count("vectors")
        return done / (done + queued) if done + queued else 1.0


def _formats(tool: str) -> tuple[str, ...]:
    """The formats that a name means: itself, or those that begin with it."""
    if formats.find(tool) is not None:
        return (tool,)
    names = formats.default().names()
    found = tuple(name for name in names if name.startswith(tool.lower()))
    if not found:
        raise UsageError(f"there is no tool named {tool!r}", hint=f"one of: {', '.join(names)}")
    return found


def _resume(path: Path, format: str, project: str | None, metadata: dict[str, Any], parent: str | None) -> str | None:
    """The command that reopens the session in its own tool."""
    known = formats.find(format)
    if known is None:
        return None
    session = Session(
        path,
        format,
        SessionMetadata(session_id=metadata.get("session_id"), project=project),
        parent_id=parent,
        agent_id=metadata.get("agent_id"),
        subagent_type=metadata.get("subagent_type"),
    )
    return known.resume_command(session)
