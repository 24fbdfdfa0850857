"""Text -> WordPiece token ids, as BERT's uncased tokenizer gives them, with a cache from word to ids.

Both bundled models share this vocabulary (MiniLM's has 994 unused entries more, so ids differ and counts do
not). The cache makes it two to three times as fast as the tokenizers library on conversations; a test
compares the two on real text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from mempalace import models

_LONGEST_WORD = 100
_CACHED_WORDS = 200_000


@cache
def _pieces() -> re.Pattern[str]:
    """ASCII punctuation and symbols part words, as do letters that stand alone in their script."""
    alone = (
        "\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
        "\U0002f800-\U0002fa1f"
    )
    symbols = r"!-/:-@\[-`{-~"
    return re.compile(rf"[{alone}]|[{symbols}]|[^\s{symbols}{alone}]+")


class WordPiece:
    """A tokenizer over one vocabulary (token -> id). Words that it cannot spell have no ids."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._words: dict[str, tuple[int, ...]] = {}

    def ids(self, text: str) -> list[int]:
        """The token ids of a text, [UNK] for what cannot be spelled, without [CLS] and [SEP]."""
        words = self._words
        found: list[int] = []
        for word in text.split():
            known = words.get(word)
            found += self._remember(word) if known is None else known
        return found

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        words = self._words
        total = 0
        for word in text.split():
            known = words.get(word)
            total += len(self._remember(word) if known is None else known)
        return total

    def knows(self, word: str) -> bool:
        """Whether a word is one token of the vocabulary."""
        found = self.ids(word)
        return len(found) == 1 and self._unknown not in found

    def _remember(self, word: str) -> tuple[int, ...]:
        if len(self._words) >= _CACHED_WORDS:
            self._words.clear()
        ids = tuple(token for piece in _split(word) for token in self._spell(piece))
        if len(word) <= _LONGEST_WORD:
            self._words[word] = ids
        return ids

    def _spell(self, piece: str) -> tuple[int, ...]:
        """Longest match first, from the left; the whole piece is unknown if any part is."""
        vocabulary = self._vocabulary
        whole = vocabulary.get(piece)
        if whole is not None:
            return (whole,)
        if len(piece) > _LONGEST_WORD:
            return (self._unknown,)
        found: list[int] = []
        start, length = 0, len(piece)
        while start < length:
            prefix = "##" if start else ""
            for end in range(length, start, -1):
                token = vocabulary.get(prefix + piece[start:end])
                if token is not None:
                    found.append(token)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(found)


def _split(word: str) -> list[str]:
    """A word without spaces as BERT's pieces: cleaned, lower case, without accents, punctuation apart."""
    if word.isascii() and word.isprintable():
        return _pieces().findall(word.lower())
    cleaned = "".join(_clean(char) for char in word)
    plain = "".join(char for char in unicodedata.normalize("NFD", cleaned.lower()) if not _is_accent(char))
    pieces: list[str] = []
    for piece in _pieces().findall(plain):
        pieces += _split_punctuation(piece) if not piece.isascii() else [piece]
    return pieces


# The format characters that BERT's tokenizer takes out; later versions of Unicode have more, which it keeps.
_FORMAT = frozenset(
    "\u00ad\u061c\u06dd\u070f\u08e2\u180e\ufeff\u0600\u0601\u0602\u0603\u0604\u0605\u200b\u200c\u200d\u200e\u200f"
    "\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\u206a\u206b\u206c\u206d"
    "\u206e\u206f\ufff9\ufffa\ufffb"
)


def _clean(char: str) -> str:
    """Control and format characters vanish, other kinds of space become one."""
    if char == "\ufffd" or char in _FORMAT or unicodedata.category(char) in ("Cc", "Co"):
        return ""
    return " " if unicodedata.category(char) == "Zs" else char


def _is_accent(char: str) -> bool:
    """By an old edition of Unicode: the library knows fewer accents than Python, and to keep one is to count more."""
    return unicodedata.ucd_3_2_0.category(char) == "Mn"


def _split_punctuation(piece: str) -> list[str]:
    parts: list[str] = []
    word = ""
    for char in piece:
        if unicodedata.category(char).startswith("P"):
            if word:
                parts.append(word)
                word = ""
            parts.append(char)
        else:
            word += char
    if word:
        parts.append(word)
    return parts


@cache
def shared() -> WordPiece:
    """The tokenizer of the bundled static model (its ids index the rows of the weights)."""
    return WordPiece(models.vocabulary(models.STATIC_TOKENIZER))
