"""Small bars in tables."""

from __future__ import annotations

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(value: float, greatest: float, columns: int = 12) -> str:
    """A bar for a value, `columns` long for the greatest; anything above 0 shows at least a sliver."""
    if value <= 0 or greatest <= 0:
        return ""
    eighths = max(1, round(value / greatest * columns * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def cut(text: str, room: int) -> str:
    """A text on one line, its end cut off where it is longer than the room."""
    text = " ".join(text.split())
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def shorten(text: str, room: int) -> str:
    """A name on one line, cut in the middle where it is longer than the room: ends tell paths apart."""
    text = " ".join(text.split())
    if len(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}" if tail else text[: max(0, room - 1)] + "…"
