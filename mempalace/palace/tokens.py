"""Text -> the tokens of the lexical index: its analyzers, and what they cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder
from tantivy import Tokenizer as Tokenizers

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = re.compile(r"[A-Za-z0-9_]+(?:[-./:@#+~\\]+[A-Za-z0-9_]+)*")
_CAMEL_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST_IDENTIFIER = 200


def analyzers() -> dict[str, TextAnalyzer]:
    def build(tokenizer: Tokenizers, *filters: Filter) -> TextAnalyzer:
        builder = TextAnalyzerBuilder(tokenizer)
        for item in filters:
            builder = builder.filter(item)
        return builder.build()

    plain = (Filter.lowercase(), Filter.ascii_fold())
    return {
        "words": build(Tokenizers.simple(), *plain, Filter.stemmer("english")),
        "plain": build(Tokenizers.simple(), Filter.lowercase()),
        "whole": build(Tokenizers.whitespace(), Filter.lowercase()),
        "chars": build(Tokenizers.regex(f"[{_UNSPACED}]")),
    }


_plain_words: set[str] = set()
_MOST_PLAIN_WORDS = 200_000


def identifiers(text: str) -> tuple[list[str], list[str]]:
    """The distinct words of a text that are more than letters, and the parts of those in camelCase.

    tantivy's own regex tokenizer costs three times as much, and has no splitter for camelCase. Most words are
    plain, and the same ones: those seen before are taken out all at once.
    """
    wholes: list[str] = []
    parts: list[str] = []
    if len(_plain_words) > _MOST_PLAIN_WORDS:
        _plain_words.clear()
    for word in sorted(set(_WORD.findall(text)) - _plain_words):
        if len(word) > _LONGEST_IDENTIFIER:
            continue
        if not word.isalpha():
            wholes.append(word)
        elif word.islower() or word.istitle() or word.isupper():
            _plain_words.add(word)
        else:
            parts.append(_CAMEL_BORDER.sub(" ", word))
    return wholes, parts


# Words of questions and sentences that say little about what is looked for. They count for less, not for nothing:
# left out, they cost 0.03 of MRR on questions about code; counted in full, 0.03 on questions about talk.
STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren as at be because been before being below between
    both but by can cannot could couldn d did didn do does doesn doing don down during each else even ever few for from
    further get got had hadn has hasn have haven having he her here hers herself him himself his how i if in into is
    isn it its itself just ll m ma me might more most must my myself need no nor not now of off on once only or other
    our ours ourselves out over own re s same shall she should shouldn so some such t than that the their theirs them
    themselves then there these they this those through to too under until up us ve very was wasn we were weren what
    when where which while who whom whose why will with won would wouldn you your yours yourself yourselves
    """.split()  # noqa: SIM905 - a list of strings would take a page
)
STOP_WEIGHT = 0.4


def weighted(words: Iterable[str]) -> list[tuple[str, float]]:
    """The distinct words of a query (in lower case), each with how much it counts: 1, or STOP_WEIGHT."""
    distinct = list(dict.fromkeys(words))
    if all(word in STOP_WORDS for word in distinct):
        return [(word, 1.0) for word in distinct]
    return [(word, STOP_WEIGHT if word in STOP_WORDS else 1.0) for word in distinct]
