"""The lexical index (tantivy): BM25 over words, whole identifiers and single characters. Derived, disposable.

Fields of a document (a chunk):
    words   split at all but letters and digits, lower case, accents folded, English stems; the parts of
            camelCase identifiers are added
    whole   identifiers, paths and addresses as they stand, lower case: `src/app.py:42`, `bd-q3fy`
    chars   single characters of scripts that are written without spaces
    and those that filter: kind, scope, format, project, wing, role, session, time (of the first message) and last
Text is not stored here; a hit is a chunk's number in the catalog.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tantivy
from tantivy import Index, Occur, Query, TextAnalyzer

from mempalace.errors import PalaceDamaged, StoreError
from mempalace.palace.entries import Entry, document, schema
from mempalace.palace.tokens import analyzers, identifiers, weighted
from mempalace.values import clean

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

_HEAP_BYTES = 64 << 20
_MOST_TERMS = 64
_LONGEST_PHRASE = 60
_MOST_TIES = 5_000
_SHORTEST_SIMILAR = 4  # letters of a word that may stand for similar ones
_LONGEST_SIMILAR = 64  # tantivy refuses larger automata
_TWO_TYPOS = 8
_MOST_UNKNOWN = 8
_SIMILAR_BOOST = 4.0  # about what a rare word scores


@dataclass(frozen=True, slots=True)
class Restriction:
    """Which chunks may be found. Empty means any; times are epoch seconds, `until` is exclusive."""

    kinds: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    wings: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    sessions: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: free words, phrases that must occur, words that must not."""

    words: str = ""
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """tantivy panics on damaged files, with an exception that is no Exception: here it becomes PalaceDamaged."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise PalaceDamaged(
            "the lexical index is damaged", path=path, hint="make it again: mempalace rebuild"
        ) from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """As `_told`, for what only reads: whatever fails then, the index is to blame."""
    try:
        with _told(path):
            yield
    except (ValueError, OSError) as error:
        raise PalaceDamaged(
            f"the lexical index cannot be read: {error}", path=path, hint="make it again: mempalace rebuild"
        ) from error


class LexicalIndex:
    """An index on disk, for reading and, under the palace's lock, for writing."""

    def __init__(self, index: Index, path: Path, links: TemporaryDirectory[str] | None = None) -> None:
        self._index = index
        self.path = path
        self._links = links  # lives as long as the index

    @classmethod
    def create(cls, path: Path) -> LexicalIndex:
        """A new, empty index in a folder that is made for it."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            return cls._prepare(Index(schema(), path=str(path)), path)
        except (ValueError, OSError) as error:
            raise StoreError(f"the lexical index cannot be made: {error}", path=path) from error

    @classmethod
    def open(cls, path: Path) -> LexicalIndex:
        """The index in a folder. Raises PalaceDamaged if there is none that can be read."""
        links = None
        try:
            with _told(path):
                if path.is_dir() and not os.access(path, os.W_OK):
                    # tantivy takes a lock in the folder also to read: on a read-only disk, in one of links to it.
                    from tempfile import TemporaryDirectory

                    links = TemporaryDirectory(prefix="mempalace-")
                    for entry in path.iterdir():
                        if entry.suffix != ".lock":
                            Path(links.name, entry.name).symlink_to(entry.absolute())
                return cls._prepare(Index.open(links.name if links else str(path)), path, links)
        except (ValueError, OSError) as error:
            raise PalaceDamaged(
                f"the lexical index cannot be read: {error}", path=path, hint="make it again: mempalace rebuild"
            ) from error

    @classmethod
    def _prepare(cls, index: Index, path: Path, links: TemporaryDirectory[str] | None = None) -> LexicalIndex:
        for name, analyzer in analyzers().items():
            index.register_tokenizer(name, analyzer)
        return cls(index, path, links)

    # --- writing --------------------------------------------------------------------------------------------

    def write(self, entries: Iterable[Entry], removed: Sequence[int] = (), after: int = 0) -> int:
        """Add chunks, whose numbers are all greater than `after`, and remove others; the number added.

        All of it becomes visible at once. What an interrupted write may have left beyond `after` is removed
        first, so that it can be repeated.
        """
        schema = self._index.schema
        try:
            with _told(self.path):
                writer = self._index.writer(heap_size=_HEAP_BYTES, num_threads=1)
                writer.delete_documents_by_query(
                    Query.range_query(
                        schema, "chunk", tantivy.FieldType.Unsigned, lower_bound=after, include_lower=False
                    )
                )
                if removed:
                    writer.delete_documents_by_query(Query.term_set_query(schema, "chunk", list(removed)))
                added = 0
                for entry in entries:
                    writer.add_document(document(entry))
                    added += 1
                writer.commit()
                writer.wait_merging_threads()
        except (ValueError, OSError) as error:
            raise StoreError(f"the lexical index cannot be written: {error}", path=self.path) from error
        self._index.reload()
        return added

    # --- reading --------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """See what another process has written."""
        self._index.reload()

    def count(self) -> int:
        """The number of chunks in the index."""
        return int(self._index.searcher().num_docs)

    def search(self, wanted: Wanted, allowed: Restriction, limit: int) -> dict[int, float]:
        """The best chunks for what is wanted, among those that are allowed, by BM25 score, best first."""
        with _reading(self.path):
            searcher = self._index.searcher()
            query = self._query(wanted, searcher)
            if query is None:
                return {}
            parts = [(Occur.Must, query)]
            parts += [(Occur.Must, Query.const_score_query(one, 0.0)) for one in self._filters(allowed)]
            hits = self._with_ties(searcher, Query.boolean_query(parts), limit)
            addresses = [address for _, address in hits]
            chunks: list[Any] = searcher.fast_field_values("chunk", addresses) if addresses else []
        scored = sorted((-float(score), int(chunk)) for chunk, (score, _) in zip(chunks, hits, strict=True))
        return {chunk: -score for score, chunk in scored[:limit]}

    def _with_ties(self, searcher: tantivy.Searcher, query: Query, limit: int) -> list[Any]:
        """The best hits and all that tie with the last of them: tantivy would choose by segment."""
        limit = min(limit, int(searcher.num_docs) or 1)  # room for as many is made at once
        asked = limit + 1
        while True:
            hits: list[Any] = searcher.search(query, limit=asked, count=False).hits
            if len(hits) < asked or hits[-1][0] < hits[limit - 1][0] or asked > _MOST_TIES:
                return hits
            asked *= 4

    def counts(self, wanted: Wanted, places: Mapping[str, Restriction]) -> dict[str, int]:
        """How many of the allowed chunks have all that is wanted, by the name of each place that has any."""
        searcher = self._index.searcher()
        text = clean(wanted.words)
        words = [stem for stem, weight in self._stems_of(text).items() if weight == 1]
        needed = [self._term("words", word) for word in words[:_MOST_TERMS]] + self._unspaced(text)[:_MOST_TERMS]
        needed += [phrase for phrase in map(self._phrase, wanted.phrases) if phrase is not None]
        if not needed:
            return {}
        parts = [(Occur.Must, one) for one in needed]
        parts += [(Occur.MustNot, word) for word in map(self._phrase, wanted.excluded) if word is not None]
        found = {}
        with _reading(self.path):
            for name, allowed in places.items():
                query = Query.boolean_query([*parts, *((Occur.Must, one) for one in self._filters(allowed))])
                result = searcher.search(query, limit=1, count=True)
                found[name] = result.count or 0  # type: ignore[attr-defined]  # the stub lacks it
        return {name: count for name, count in found.items() if count}

    def weights(self, text: str) -> dict[str, float]:
        """Each word of a query, lower case, with how much it tells: its inverse document frequency, less for filler."""
        searcher = self._index.searcher()
        total = int(searcher.num_docs)
        found: dict[str, float] = {}
        with _reading(self.path):
            for word, weight in weighted(self._tools["plain"].analyze(clean(text))):
                frequency = max(
                    (searcher.doc_freq("words", stem) for stem in self._tools["words"].analyze(word)), default=total
                )
                found[word] = weight * math.log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))
        return found

    def unknown(self, text: str) -> list[str]:
        """The words of a query that no chunk has: they stand for words that hold them or are spelled alike."""
        searcher = self._index.searcher()
        found = []
        with _reading(self.path):
            for word in dict.fromkeys(self._tools["plain"].analyze(clean(text))):
                stems = self._tools["words"].analyze(word)
                fits = _SHORTEST_SIMILAR <= len(word) <= _LONGEST_SIMILAR
                if fits and not any(searcher.doc_freq("words", stem) for stem in stems):
                    found.append(word)
        return found[:_MOST_UNKNOWN]

    def _similar(self, text: str) -> list[Query]:
        """Queries for words that hold an unknown one, or differ from it by a letter or two."""
        schema = self._index.schema
        queries: list[Query] = []
        for word in self.unknown(text):
            stem = self._tools["words"].analyze(word)[0]
            if stem.isalnum():
                held = Query.regex_query(schema, "words", f".*{stem}.*")
                queries.append(Query.boost_query(held, _SIMILAR_BOOST))
            distance = 1 if len(word) < _TWO_TYPOS else 2
            near = Query.fuzzy_term_query(schema, "words", stem, distance, True, False)
            queries.append(Query.boost_query(near, _SIMILAR_BOOST))
        return queries

    def _stems_of(self, text: str) -> dict[str, float]:
        """The words of a query as the index knows them, each with how much it counts."""
        found: dict[str, float] = {}
        for word, weight in weighted(self._tools["plain"].analyze(text)):
            for stem in self._tools["words"].analyze(word):
                found[stem] = max(weight, found.get(stem, 0.0))
        return found

    def stems(self, text: str) -> set[str]:
        """The words of a text as the index knows them."""
        return set(self._tools["words"].analyze(text)) | set(self._tools["chars"].analyze(text))

    @cached_property
    def _tools(self) -> dict[str, TextAnalyzer]:
        return analyzers()

    def _term(self, field: str, term: Any) -> Query:
        return Query.term_query(self._index.schema, field, term)

    def _query(self, wanted: Wanted, searcher: tantivy.Searcher) -> Query | None:
        parts = self._free(clean(wanted.words), searcher)
        required = [self._phrase(phrase) for phrase in wanted.phrases]
        found: list[tuple[Occur, Query]] = []
        if parts:
            occur = Occur.Should if required else Occur.Must
            found.append((occur, Query.boolean_query([(Occur.Should, part) for part in parts])))
        found += [(Occur.Must, phrase) for phrase in required if phrase is not None]
        if not found:
            return None
        return Query.boolean_query(found)

    def _free(self, text: str, searcher: tantivy.Searcher) -> list[Query]:
        """Queries for words of which any may occur: the rarest, if there are very many."""
        names, parts = identifiers(text)
        words = self._stems_of(text)
        for stem in self._tools["words"].analyze(" ".join(parts)):
            words.setdefault(stem, 1.0)
        wholes = [word.lower() for word in names]
        if len(words) > _MOST_TERMS:
            rarest = sorted(words, key=lambda stem: (searcher.doc_freq("words", stem) or 1 << 62) / words[stem])
            words = {stem: words[stem] for stem in rarest[:_MOST_TERMS]}
        if len(wholes) > _MOST_TERMS:
            wholes = sorted(wholes, key=lambda word: searcher.doc_freq("whole", word) or 1 << 62)[:_MOST_TERMS]
        queries = [
            self._term("words", stem) if weight == 1 else Query.boost_query(self._term("words", stem), weight)
            for stem, weight in words.items()
        ]
        queries += [Query.boost_query(self._term("whole", word), 2.0) for word in wholes]
        in_order = self._tools["words"].analyze(text)
        if 1 < len(in_order) <= _LONGEST_PHRASE:
            queries.append(Query.boost_query(Query.phrase_query(self._index.schema, "words", list(in_order)), 2.0))
        return queries + self._similar(text) + self._unspaced(text)

    def _unspaced(self, text: str) -> list[Query]:
        """Pairs of neighbouring characters of a text in a script without spaces, and its runs as a whole."""
        queries: list[Query] = []
        for run in re.findall(r"[^\x00-\x7f]+", text):
            chars = self._tools["chars"].analyze(run)[:_MOST_TERMS]
            if len(chars) == 1:
                queries.append(self._term("chars", chars[0]))
                continue
            pairs = list(dict.fromkeys(pairwise(chars)))
            queries += [Query.phrase_query(self._index.schema, "chars", list(pair)) for pair in pairs]
            if len(chars) > 2:
                whole = Query.phrase_query(self._index.schema, "chars", list(chars))
                queries.append(Query.boost_query(whole, 2.0))
        return queries

    def _phrase(self, text: str) -> Query | None:
        """A query for words that follow each other; None if there are no words in the text."""
        parts: list[Query] = []
        text = clean(text)
        words = self._tools["words"].analyze(text)
        if len(words) > 1:
            parts.append(Query.phrase_query(self._index.schema, "words", list(words)))
        elif words:
            parts.append(self._term("words", words[0]))
        chars = self._tools["chars"].analyze(text)
        if len(chars) > 1:
            parts.append(Query.phrase_query(self._index.schema, "chars", list(chars)))
        elif chars:
            parts.append(self._term("chars", chars[0]))
        if not parts:
            return None
        return Query.boolean_query([(Occur.Should, part) for part in parts])

    def _any_of(self, field: str, values: Sequence[Any]) -> Query:
        """A query for any of some values. A set of terms is first made a bitset of all chunks that have one."""
        if len(values) > _MOST_TERMS:
            return Query.term_set_query(self._index.schema, field, list(values))
        terms = [self._term(field, value) for value in values]
        return terms[0] if len(terms) == 1 else Query.boolean_query([(Occur.Should, term) for term in terms])

    def _filters(self, allowed: Restriction) -> list[Query]:
        terms = {
            "kind": allowed.kinds,
            "scope": allowed.scopes,
            "format": allowed.formats,
            "project": allowed.projects,
            "wing": allowed.wings,
            "role": allowed.roles,
            "session": allowed.sessions,
            "chunk": allowed.chunks,
        }
        schema = self._index.schema
        filters = [self._any_of(name, values) for name, values in terms.items() if values]
        integer = tantivy.FieldType.Integer
        if allowed.since is not None:
            filters.append(Query.range_query(schema, "last", integer, lower_bound=math.floor(allowed.since)))
        if allowed.until is not None:
            until = math.ceil(allowed.until)
            filters.append(Query.range_query(schema, "time", integer, upper_bound=until, include_upper=False))
        return filters
