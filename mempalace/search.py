"""The one search behind every face: two legs, fusion on scores, exact words first.

    query -> wanted words, phrases, exclusions
          -> lexical candidates (BM25) + vector candidates (exact cosine)
          -> both scores for every candidate, fused; a literal match counts most
          -> copies collapsed, at most three hits a session
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
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

INCLUDES: dict[str, tuple[str, ...]] = {
    "tool": ("tool",),
    "thinking": ("thinking",),
    "injected": ("injected", "command", "summary"),
    "abandoned": ("abandoned",),
}
SCOPES = ("subagent", "headless")
ALL = "all"


@dataclass(frozen=True, slots=True)
class Filters:
    """What may be found; empty means any. `include` adds to dialogue of main sessions: see INCLUDES, SCOPES, all."""

    project: str | None = None
    tool: str | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    session: str | None = None
    wing: str | None = None
    include: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Those that are set, as JSON data."""
        found = {name: value for name, value in asdict(self).items() if value}
        for name in ("since", "until"):
            if name in found:
                found[name] = format_time(found[name])
        if "include" in found:
            found["include"] = list(found["include"])
        return found


@dataclass(slots=True)
class Hit:
    """One result. `text` is a slice of the transcript; `line` that of the best-matching message in its source."""

    rank: int
    score: float
    scores: dict[str, float | None]
    chunk_id: str
    session_id: str
    message_id: str | None
    parent_session_id: str | None
    format: str
    project: str | None
    title: str | None
    role: str
    origin: str
    timestamp: str | None
    text: str
    path: str
    line: int | None
    source_gone: bool
    copies: list[str]
    resume: str | None


@dataclass(slots=True)
class SearchResults:
    """The hits, best first, and how they were found.

    `hidden` counts what also has all the words but was not asked for (tool output, sub-agents, ...); `terms`
    are the words to mark; `embedded` is the share of dialogue that has vectors.
    """

    query: str
    filters: Filters
    indexes: list[str]
    results: list[Hit]
    masked: int = 0
    hidden: dict[str, int] = field(default_factory=dict)
    terms: list[str] = field(default_factory=list)
    embedded: float = 1.0
    behind: int = 0

    def __iter__(self) -> Any:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract of `search --json`, version 1."""
        return {
            "schema_version": 1,
            "query": self.query,
            "filters": self.filters.to_dict(),
            "indexes": self.indexes,
            "masked": self.masked,
            "hidden": self.hidden,
            "embedded": round(self.embedded, 4),
            "results": [asdict(hit) for hit in self.results],
        }


_QUOTED = re.compile(r'(?<!\w)(-?)"([^"]+)"')
_EXCLUDED = re.compile(r"(?:^|(?<=\s))-(\w\S*)")


def parse_query(query: str) -> Wanted:
    """`"words in quotes"` must occur as they are, `-word` must not; the rest are free words.

    Raises UsageError for a query without anything to look for.
    """
    phrases: list[str] = []
    excluded: list[str] = []

    def take(match: re.Match[str]) -> str:
        (excluded if match[1] else phrases).append(match[2])
        return " "

    rest = _QUOTED.sub(take, query)
    for word in _EXCLUDED.findall(rest):
        excluded.append(word)
    free = _EXCLUDED.sub(" ", rest).strip()
    if not free and not phrases:
        raise UsageError("there is nothing to search for", hint='give some words: mempalace search "why GraphQL"')
    return Wanted(free, tuple(phrases), tuple(excluded))


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
        self, query: str, limit: int = 10, filters: Filters = Filters(), *, lexical_only: bool = False  # noqa: B008
    ) -> SearchResults:
        """The best `limit` hits. Raises UsageError, AmbiguousId, NotFound, PalaceDamaged, ModelError."""
        if limit < 1:
            raise UsageError(f"the limit must be at least 1, not {limit}")
        self.refresh()
        return _Search(self, query, limit, filters, lexical_only).run()

    def find_session(self, prefix: str) -> int:
        """The number of the session whose id begins like that. Raises NotFound or AmbiguousId."""
        found = self.catalog.rows("SELECT id, key FROM sessions WHERE key = ?", prefix)
        if len(found) != 1:
            pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            found = found or self.catalog.rows(
                "SELECT id, key FROM sessions WHERE key LIKE ? ESCAPE '\\' AND (kind <> 'subagent' OR instr(?, '/') > 0)"
                " ORDER BY key LIMIT 20",
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
        chunks = {chunk: of_text[text] for chunk, text, scope in found if not allowed or scope in allowed}
        return dict(sorted(chunks.items(), key=lambda item: (-item[1], item[0]))[:limit])

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
        return [_Candidate(*row[:8], spans=[tuple(span) for span in orjson.loads(row[8])]) for row in rows]

    # --- ranking --------------------------------------------------------------------------------------------

    def _score(self, candidates: list[_Candidate], lexical: dict[int, float], vector: dict[int, float]) -> None:
        index = self.reader.lexical
        missing = tuple(one.chunk for one in candidates if one.chunk not in lexical)
        if missing and index is not None:
            lexical = {**lexical, **index.search(self.wanted, Restriction(chunks=missing), len(missing)).scores}
        cosines = self._cosines(candidates) if "vectors" in self.indexes else {}
        needle = _fold(self.wanted.words)
        for one in candidates:
            one.lexical = lexical.get(one.chunk, 0.0)
            one.vector = max(0.0, cosines.get(one.text, 0.0))
            one.literal = bool(needle) and needle in _fold(_spoken(one))
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
        terms = set(re.findall(r"\w+", needle)) | {word for phrase in self.wanted.phrases for word in _fold(phrase).split()}

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
