"""The one search behind every face: two legs, fusion on scores, exact words first.

query -> wanted words, phrases, exclusions
      -> lexical candidates (BM25) + vector candidates (exact cosine)
      -> both scores for every candidate, fused; a literal match counts most
      -> copies collapsed, at most three hits a session
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from mempalace import embedding
from mempalace.errors import AmbiguousId, NotFound, UsageError
from mempalace.formats import registry as formats
from mempalace.model import Session, SessionMetadata, format_time
from mempalace.palace import folder
from mempalace.palace.catalog import Catalog
from mempalace.palace.lexical import LexicalIndex, Restriction, Wanted
from mempalace.palace.vectors import VectorTable
from mempalace.query import ALL, INCLUDES, SCOPES, Filters, Hit, SearchResults, parse_query
from mempalace.transcript import unquote

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CANDIDATES = 60
_PHRASE_CANDIDATES = 400
_MOST_PER_SESSION = 3
# From RETRIEVAL measurements on LoCoMo and code sessions: scores divided by their maximum, no rank fusion.
_LEXICAL_WEIGHT = 0.6
_VECTOR_WEIGHT = 0.4
_SESSION_PRIOR = 0.4
_LITERAL_BONUS = 1.0
_LITERAL_WORD_BONUS = 0.3


@dataclass(slots=True)
class _Candidate:
    """A chunk that may be a hit, with its row and scores."""

    chunk: int
    uid: str
    session: int
    time: float
    text: int
    words: bytes
    body: str
    kind: str
    spans: list[tuple[int, int, int, str, str]]
    lexical: float = 0.0
    vector: float = 0.0
    literal: bool = False
    score: float = 0.0


class Reader:
    """A palace open for searching. Long-lived ones notice what others write; nothing is ever written."""

    def __init__(self, palace: Path) -> None:
        folder.require(palace)
        self.palace = palace
        self.catalog = Catalog.open(palace)
        self._generation = self.catalog.generation

    def close(self) -> None:
        """Release the files."""
        self.catalog.db.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refresh(self) -> None:
        """See what was written since."""
        generation = self.catalog.generation
        if generation != self._generation:
            self._generation = generation
            for name in ("lexical", "vectors"):
                self.__dict__.pop(name, None)

    @cached_property
    def lexical(self) -> LexicalIndex | None:
        """The lexical index; None while nothing has been indexed."""
        if not int(self.catalog.get("lexical_through", "0") or 0):
            return None
        return LexicalIndex.open(self.palace / folder.LEXICAL)

    @cached_property
    def vectors(self) -> VectorTable | None:
        """All vectors; None if there are none, or if another model made them."""
        if self.catalog.get("vector_model") != embedding.default().model_id:
            return None
        table = VectorTable.load(self.catalog)
        return table if len(table) else None

    def search(
        self, query: str, limit: int = 10, filters: Filters | None = None, *, lexical_only: bool = False
    ) -> SearchResults:
        """The best `limit` hits. Raises UsageError, AmbiguousId, NotFound, PalaceDamaged, ModelError."""
        if limit < 1:
            raise UsageError(f"the limit must be at least 1, not {limit}")
        self.refresh()
        return _Search(self, query, limit, filters or Filters(), lexical_only).run()

    def find_session(self, prefix: str) -> int:
        """The number of the session whose id begins like that. Raises NotFound or AmbiguousId."""
        found = self.catalog.rows("SELECT id, key FROM sessions WHERE key = ?", prefix)
        if len(found) != 1:
            pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            found = found or self.catalog.rows(
                "SELECT id, key FROM sessions WHERE key LIKE ? ESCAPE '\\'"
                " AND (kind <> 'subagent' OR instr(?, '/') > 0) ORDER BY key LIMIT 20",
                pattern,
                prefix,
            )
        if not found:
            raise NotFound(f"no session's id begins with {prefix!r}", hint="find one: mempalace search ...")
        if len(found) > 1:
            ids = [str(key) for _, key in found]
            raise AmbiguousId(f"{prefix!r} fits several sessions: {', '.join(ids)}", ids, hint="give more of the id")
        return int(found[0][0])


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
        lexical = self._lexical()
        vector = {} if self.lexical_only else self._vector()
        candidates = self._load({**dict.fromkeys(lexical), **dict.fromkeys(vector)})
        if self.wanted.excluded:
            candidates = self._without_excluded(candidates)
        self._score(candidates, lexical, vector)
        hits = self._select(candidates)
        chunks = self.catalog.row("SELECT MAX(id) FROM chunks")[0] or 0
        return SearchResults(
            query=self.query,
            filters=self.filters,
            indexes=self.indexes,
            results=hits,
            hidden=self._hidden(),
            terms=self._terms(),
            embedded=self._embedded(),
            behind=max(0, chunks - int(self.catalog.get("lexical_through", "0") or 0)),
        )

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
            projects=tuple(name for name in (filters.project, filters.wing) if name),
            roles=() if filters.role is None else (filters.role,),
            sessions=() if session is None else (session,),
            since=None if filters.since is None else filters.since.timestamp(),
            until=None if filters.until is None else filters.until.timestamp(),
        )

    def _lexical(self) -> dict[int, float]:
        index = self.reader.lexical
        if index is None:
            return {}
        self.indexes.append("lexical")
        limit = _PHRASE_CANDIDATES if self.wanted.phrases else max(CANDIDATES, 2 * self.limit)
        return index.search(self.wanted, self.allowed, limit).scores

    def _vector(self) -> dict[int, float]:
        """Chunks by exact cosine. Phrases are literal: then only what the lexical index found counts."""
        if self.wanted.phrases or ("dialogue" not in self.allowed.kinds and self.allowed.kinds):
            return {}
        table = self.reader.vectors
        query = self._query_vector
        if table is None or query is None:
            return {}
        import numpy as np

        self.indexes.append("vectors")
        scores = table.scores(query)
        limit = max(CANDIDATES, 2 * self.limit)
        if self._is_narrow():
            chunks, rows = self._allowed_rows(table)
            order = np.argsort(-scores[rows], kind="stable")[:limit]
            return {int(chunks[at]): float(scores[rows[at]]) for at in order}
        best = np.argsort(-scores, kind="stable")[: 4 * limit]
        of_text = {int(table.texts[at]): float(scores[at]) for at in best}
        found = self.catalog.rows_in(
            "SELECT c.id, c.text, s.kind FROM chunks c JOIN sessions s ON s.id = c.session WHERE c.text IN (?)", of_text
        )
        allowed = self.allowed.scopes
        scored = {chunk: of_text[text] for chunk, text, scope in found if not allowed or scope in allowed}
        return dict(sorted(scored.items(), key=lambda item: (-item[1], item[0]))[:limit])

    def _is_narrow(self) -> bool:
        allowed = self.allowed
        return bool(
            allowed.formats or allowed.projects or allowed.roles or allowed.sessions or allowed.since or allowed.until
        )

    def _allowed_rows(self, table: VectorTable) -> tuple[list[int], NDArray[np.int64]]:
        """The dialogue chunks that the filters allow, and the row of each one's vector."""
        import numpy as np

        where, values = self._where()
        rows = self.catalog.rows(
            "SELECT c.id, c.text FROM chunks c JOIN sessions s ON s.id = c.session"
            f" WHERE c.kind = 'dialogue' AND {where} ORDER BY c.id",
            *values,
        )
        texts = np.array([text for _, text in rows], dtype=np.int64)
        places = np.searchsorted(table.texts, texts)
        places[places == len(table.texts)] = 0
        known = table.texts[places] == texts if len(texts) else np.zeros(0, dtype=bool)
        chunks = [row[0] for row, there in zip(rows, known, strict=True) if there]
        return chunks, places[known]

    def _where(self) -> tuple[str, list[Any]]:
        """The restriction as SQL over chunks c and sessions s."""
        allowed = self.allowed
        parts, values = ["1"], []
        for column, names in (("s.kind", allowed.scopes), ("s.format", allowed.formats), ("s.id", allowed.sessions)):
            if names:
                parts.append(f"{column} IN ({','.join('?' * len(names))})")
                values += list(names)
        for project in allowed.projects:
            parts.append("(s.project = ? OR s.wing = ?)")
            values += [project, project]
        for role in allowed.roles:
            parts.append("instr(c.spans, ?) > 0")
            values.append(f'"{role}"')
        if allowed.since is not None:
            parts.append("c.time >= ?")
            values.append(allowed.since)
        if allowed.until is not None:
            parts.append("c.time < ?")
            values.append(allowed.until)
        return " AND ".join(parts), values

    @cached_property
    def _query_vector(self) -> NDArray[np.float32] | None:
        vector = embedding.default().embed([self.wanted.words])[0]
        return vector if vector.any() else None

    def _load(self, chunks: Iterable[int]) -> list[_Candidate]:
        rows = self.catalog.rows_in(
            "SELECT c.id, c.uid, c.session, COALESCE(c.time, 0), c.text, t.words, t.body, c.kind, c.spans"
            " FROM chunks c JOIN texts t ON t.id = c.text WHERE c.id IN (?)",
            chunks,
        )
        return [_candidate(row) for row in rows]

    def _without_excluded(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Drop what has an excluded word, but keep (and add) what has the whole query literally."""
        index = self.reader.lexical
        if index is None:
            return candidates
        as_it_stands = index.search(Wanted(phrases=(self.query,)), self.allowed, CANDIDATES).scores
        needle = _fold(self.query)
        literal = [one for one in self._load(as_it_stands) if needle in _fold(_spoken(one))]
        kept = {one.chunk: one for one in literal}
        here = Restriction(chunks=tuple(one.chunk for one in candidates))
        dropped: set[int] = set()
        for word in self.wanted.excluded:
            dropped |= index.search(Wanted(phrases=(word,)), here, len(candidates) or 1).scores.keys()
        return [*kept.values(), *(one for one in candidates if one.chunk not in kept and one.chunk not in dropped)]

    # --- ranking --------------------------------------------------------------------------------------------

    def _score(self, candidates: list[_Candidate], lexical: dict[int, float], vector: dict[int, float]) -> None:
        index = self.reader.lexical
        missing = tuple(one.chunk for one in candidates if one.chunk not in lexical)
        if missing and index is not None:
            lexical = {**lexical, **index.search(self.wanted, Restriction(chunks=missing), len(missing)).scores}
        cosines = self._cosines(candidates) if "vectors" in self.indexes else {}
        needle, whole = _fold(self.wanted.words), _fold(self.query)
        for one in candidates:
            one.lexical = lexical.get(one.chunk, 0.0)
            one.vector = max(0.0, cosines.get(one.text, 0.0))
            spoken = _fold(_spoken(one))
            one.literal = bool(needle) and (needle in spoken or whole in spoken)
        best_lexical = max((one.lexical for one in candidates), default=0.0) or 1.0
        best_vector = max((one.vector for one in candidates), default=0.0) or 1.0
        bonus = _LITERAL_BONUS if len(needle.split()) > 1 or not needle.isalpha() else _LITERAL_WORD_BONUS
        for one in candidates:
            one.score = _LEXICAL_WEIGHT * one.lexical / best_lexical + _VECTOR_WEIGHT * one.vector / best_vector
            one.score += bonus * one.literal
        _add_session_prior(candidates)

    def _cosines(self, candidates: list[_Candidate]) -> dict[int, float]:
        query = self._query_vector
        if query is None:
            return {}
        table = VectorTable.load(self.catalog, sorted({one.text for one in candidates}))
        return dict(zip(table.texts.tolist(), table.scores(query).tolist(), strict=True))

    def _select(self, candidates: list[_Candidate]) -> list[Hit]:
        """The best candidates, copies of one text as one, at most three of a session."""
        phrases = [_fold(phrase) for phrase in self.wanted.phrases]
        if phrases:
            candidates = [one for one in candidates if all(phrase in _fold(_spoken(one)) for phrase in phrases)]
        candidates.sort(key=lambda one: (-one.score, -one.time, one.uid))
        kept: list[_Candidate] = []
        seen: set[bytes] = set()
        per_session: dict[int, int] = {}
        most = self.limit if self.filters.session else _MOST_PER_SESSION
        for one in candidates:
            if one.words in seen or per_session.get(one.session, 0) >= most:
                continue
            seen.add(one.words)
            per_session[one.session] = per_session.get(one.session, 0) + 1
            kept.append(one)
            if len(kept) == self.limit:
                break
        return [self._hit(rank, one) for rank, one in enumerate(kept, 1)]

    # --- hits -----------------------------------------------------------------------------------------------

    def _hit(self, rank: int, one: _Candidate) -> Hit:
        start, end, message, role, origin = self._best_span(one)
        row = self.catalog.row(
            "SELECT key, parent_key, format, project, title, metadata FROM sessions WHERE id = ?", one.session
        )
        key, parent, format, project, title, metadata = row
        said = self.catalog.row(
            "SELECT m.id, m.time, m.line, s.path FROM messages m JOIN sources s ON s.id = m.source"
            " WHERE m.session = ? AND m.seq = ?",
            one.session,
            message,
        )
        message_id, moment, line, path = said if said is not None else (None, one.time or None, None, "")
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
            origin=origin,
            timestamp=None if moment is None else format_time(datetime.fromtimestamp(moment, UTC)),
            text=one.body.rstrip("\n"),
            match=(start, end),
            path=path,
            line=line,
            source_gone=not Path(path).exists(),
            copies=self._copies(one),
            resume=_resume(Path(path), format, project, orjson.loads(metadata), parent),
        )

    def _best_span(self, one: _Candidate) -> tuple[int, int, int, str, str]:
        """The part of a chunk that matches best: it has the query's words, and the role that was asked for."""
        spans = [span for span in one.spans if self.filters.role in (None, span[3])] or one.spans
        needle = _fold(self.wanted.words)
        terms = set(re.findall(r"\w+", needle)) | {
            word for phrase in self.wanted.phrases for word in _fold(phrase).split()
        }

        def worth(span: tuple[int, int, int, str, str]) -> tuple[bool, float]:
            words = _fold(unquote(one.body[span[0] : span[1]]))
            found = set(re.findall(r"\w+", words))
            return bool(needle) and needle in words, len(terms & found) / (1 + 0.01 * len(found))

        return max(spans, key=worth)

    def _copies(self, one: _Candidate) -> list[str]:
        """The ids of the other sessions that hold the same text."""
        rows = self.catalog.rows(
            "SELECT DISTINCT s.key FROM texts t JOIN chunks c ON c.text = t.id JOIN sessions s ON s.id = c.session"
            " WHERE t.words = ? AND s.id <> ? ORDER BY s.key",
            one.words,
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


def _candidate(row: Any) -> _Candidate:
    chunk, uid, session, moment, text, words, body, kind, spans = row
    return _Candidate(
        chunk, uid, session, moment, text, words, body, kind, [tuple(span) for span in orjson.loads(spans)]
    )


def _add_session_prior(candidates: Sequence[_Candidate]) -> None:
    """Add 0.4 x the mean of a session's three best scores: a chunk in a fitting session fits better."""
    by_session: dict[int, list[float]] = {}
    for one in candidates:
        by_session.setdefault(one.session, []).append(one.score)
    prior = {session: sum(sorted(scores)[-3:]) / 3 for session, scores in by_session.items()}
    for one in candidates:
        one.score += _SESSION_PRIOR * prior[one.session]


def _spoken(one: _Candidate) -> str:
    """A chunk's words without the marks of a person's lines."""
    return unquote(one.body)


def _fold(text: str) -> str:
    """Letter case and white space do not matter for a literal match."""
    return " ".join(text.casefold().split())


def _formats(tool: str) -> tuple[str, ...]:
    """The formats that a name means: itself, or those that begin with it."""
    names = formats.default().names()
    if tool in names:
        return (tool,)
    found = tuple(name for name in names if name.startswith(tool.lower()))
    if not found:
        raise UsageError(f"there is no tool named {tool!r}", hint=f"one of: {', '.join(names)}")
    return found


def _resume(path: Path, format: str, project: str | None, metadata: dict[str, Any], parent: str | None) -> str | None:
    """The command that reopens the session in its own tool."""
    try:
        known = formats.default().get(format)
    except UsageError:
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
