"""Text -> the tokens of the lexical index: its analyzers, and what they cannot do."""

from __future__ import annotations

import re

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
        "whole": build(Tokenizers.whitespace(), Filter.lowercase()),
        "chars": build(Tokenizers.regex(f"[{_UNSPACED}]")),
        "meaningful": build(Tokenizers.simple(), *plain, Filter.stopword("english"), Filter.stemmer("english")),
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
