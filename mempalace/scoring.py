"""Candidates -> scores: every candidate is scored in every way, whichever leg found it."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from mempalace import embedding, encoder, late, ranking, wordpiece
from mempalace.chunk import Kind, joined
from mempalace.errors import ModelError
from mempalace.palace.lexical import Restriction, Wanted
from mempalace.palace.reader import PalaceReader
from mempalace.palace.texts import first_chunks, seen_by_indexes
from mempalace.palace.tokens import STOP_WORDS
from mempalace.ranking import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PUNCTUATION = ".,;:!?'\"()"
_MOST_WORDS = 64  # of a query, the most telling, for late interaction


class Scorer:
    """Gives candidates of one query their scores. With a role, only what that role says counts.

    `included` are the kinds of chunks that were asked for beside dialogue.
    It may be asked again with more candidates: what it worked out for a text or the query is kept.
    """

    def __init__(
        self,
        reader: PalaceReader,
        query: str,
        wanted: Wanted,
        role: str | None,
        included: Container[str],
        *,
        lexical_only: bool,
    ) -> None:
        self.reader = reader
        self.query = query
        self.wanted = wanted
        self.role = role
        self.included = included
        self.lexical_only = lexical_only
        self._described: dict[int, list[str]] = {}

    @cached_property
    def query_vector(self) -> NDArray[np.float32] | None:
        """The vector of the free words; None if the model knows none of them."""
        vector = self.reader.embedder.embed_query(self.wanted.words)
        kept = int(self.reader.catalog.get("vector_dimensions") or len(vector))
        if len(vector) != kept:
            raise ModelError(
                f"the model gives vectors of {len(vector)} values, and the palace keeps {kept}",
                hint="make them again: mempalace rebuild --vectors; or search by words alone: mempalace search --fast",
            )
        return vector if vector.any() else None

    def score(self, candidates: list[Candidate], lexical: dict[int, float], *, vectors: bool) -> bool:
        """Score all candidates, of which `lexical` has some; whether the sentence encoder took part."""
        index = self.reader.lexical
        missing = tuple(one.chunk for one in candidates if one.chunk not in lexical)
        if missing and index is not None:
            lexical = {**lexical, **index.search(self.wanted, Restriction(chunks=missing), len(missing))}
        if index is not None and not all(one.whole for one in candidates):
            lexical = self._of_parts(candidates, lexical)
        for one in candidates:
            one.lexical = lexical.get(one.chunk, 0.0)
        if self.lexical_only or not self.wanted.words:
            ranking.score(candidates, self.query, self.wanted, included=self.included)
            return False
        if vectors:
            self._add_cosines(candidates)
        self._add_late(candidates)
        ranking.score(candidates, self.query, self.wanted, self._weights, self.included)
        return self._rerank(candidates)

    def _add_cosines(self, candidates: list[Candidate]) -> None:
        """The cosine of each candidate's text; if a role was asked for, of what that role says in it."""
        query = self.query_vector
        if query is None:
            return
        scores = self.reader.cosines(sorted({one.text for one in candidates}), query)
        if self.reader.embedder is embedding.bundled():
            others = {one.text for one in candidates} - scores.keys()
            made = self._made({text: joined(parts) for text, parts in self._seen(others).items()})
            scores.update(made)
            said = self._made({one.chunk: one.said for one in candidates if not one.whole})
        else:
            said = {}  # of what another model makes of a part, nothing is kept
        for one in candidates:
            one.vector = max(0.0, said.get(one.chunk, scores.get(one.text, 0.0)))

    def _made(self, texts: dict[int, str]) -> dict[int, float]:
        """The cosine of each of some texts, which have no vector yet, by the bundled model."""
        query = self.query_vector
        if not texts or query is None:
            return {}
        scores = embedding.bundled().embed(list(texts.values())) @ query
        return dict(zip(texts, scores.tolist(), strict=True))

    def _add_late(self, candidates: list[Candidate]) -> None:
        """How well the words of each candidate stand for those of the query."""
        texts = {one.text for one in candidates if one.whole}
        known = self.reader.tokens(texts)
        known.update({text: late.pack(parts) for text, parts in self._seen(texts - known.keys()).items()})
        packed = [known[one.text] if one.whole else late.pack(["", one.said]) for one in candidates]
        for one, score in zip(candidates, late.scores(self._query_tokens, packed), strict=True):
            one.late = score

    def _rerank(self, candidates: list[Candidate]) -> bool:
        """What the sentence encoder says of the best candidates: of a query that says something, and of dialogue.

        Tool output is no sentence: there the words go on standing for the meaning, as for a part of a chunk, which
        has no vector of its own; a search for a role, where most are parts, goes without.
        """
        if self.role is not None or not self._is_sentence or not self.reader.embedder.is_reranked:
            return False
        best = ranking.best_texts(candidates)
        if not best:
            return False
        talk = {one.text: one.words for one in best if one.kind == Kind.DIALOGUE and one.whole}
        cosines = {talk[text]: score for text, score in self._encoded(list(talk)).items()}
        top = max(cosines.values(), default=1.0)
        most = max((one.late for one in best), default=0.0) or 1.0
        for one in best:
            cosines.setdefault(one.words, top * one.late / most)
        ranking.rerank(candidates, cosines)
        return True

    def _encoded(self, texts: list[int]) -> dict[int, float]:
        """The cosine of some texts with the query by the sentence encoder: kept vectors, and what they lack."""
        model = encoder.default()
        found = self.reader.encoded(texts)
        missing = self._seen(set(texts) - found.keys())
        order = sorted(missing)
        vectors = embedding.pack(model.embed([joined(missing[text]) for text in order])) if order else []
        found.update(zip(order, vectors, strict=True))
        self.reader.remember(dict(zip(order, vectors, strict=True)))
        ids = sorted(found)
        scores = embedding.unpack([found[text] for text in ids], model.dimensions) @ self._encoded_query
        return dict(zip(ids, scores.tolist(), strict=True))

    def _seen(self, texts: Iterable[int]) -> dict[int, list[str]]:
        """What the indexes see of each of some texts."""
        wanted = list(texts)
        catalog = self.reader.catalog
        rows = first_chunks(catalog, [text for text in wanted if text not in self._described])
        for row, (parts, _) in zip(rows, seen_by_indexes(catalog, rows), strict=True):
            self._described[row.text] = parts
        return {text: self._described[text] for text in wanted if text in self._described}

    @cached_property
    def _encoded_query(self) -> NDArray[np.float32]:
        """The vector of the free words by the sentence encoder."""
        row: NDArray[np.float32] = encoder.default().embed([self.wanted.words])[0]
        return row

    @cached_property
    def _query_tokens(self) -> dict[int, float]:
        """The token ids of the query, each with its weight."""
        index = self.reader.lexical
        words = index.weights(self.wanted.words) if index is not None else {}
        telling = sorted(words, key=lambda word: -words[word])[:_MOST_WORDS]
        found: dict[int, float] = {}
        for word in telling:
            for token in wordpiece.shared().ids(word):
                found[token] = max(words[word], found.get(token, 0.0))
        return found

    @property
    def _weights(self) -> ranking.Weights:
        if not self.reader.embedder.is_reranked:
            return ranking.OWN_MODEL_WEIGHTS
        return ranking.WEIGHTS if self._is_known else ranking.UNKNOWN_WEIGHTS

    @property
    def _is_sentence(self) -> bool:
        """Whether the query is one for the sentence encoder: a single word or identifier is found by itself."""
        return len(self._telling) > 1 and self._is_known

    @cached_property
    def _is_known(self) -> bool:
        """Whether the models know at least half of the query's words: what they must spell out is another language.

        Names out of code are spelled out in every language.
        """
        tokens = wordpiece.shared()
        words = [word for word in self._telling if word.isalpha()] or self._telling
        return 2 * sum(map(tokens.knows, words)) >= len(words)

    @cached_property
    def _telling(self) -> list[str]:
        words = [word.strip(_PUNCTUATION) for word in self.wanted.words.casefold().split()]
        return [word for word in words if word and word not in STOP_WORDS]

    def _of_parts(self, candidates: list[Candidate], lexical: dict[int, float]) -> dict[int, float]:
        """Lexical scores by the share of the matching words that are in the parts which may match."""
        index = self.reader.lexical
        assert index is not None
        wanted = index.stems(self.query)
        scores: dict[int, float] = {}
        for one in candidates:
            if one.whole:
                scores[one.chunk] = lexical.get(one.chunk, 0.0)
                continue
            matching = wanted & index.stems(one.body)
            share = len(matching & index.stems(one.said)) / len(matching) if matching else 0.0
            scores[one.chunk] = lexical.get(one.chunk, 0.0) * share
        return scores
