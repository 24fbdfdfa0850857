"""Small bars in tables."""

from __future__ import annotations

from mempalace.cli.output import beginning, columns, one_line

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(value: float, greatest: float, length: int = 12) -> str:
    """A bar for a value, `length` long for the greatest; anything above 0 shows at least a sliver."""
    if value <= 0 or greatest <= 0:
        return ""
    eighths = max(1, round(value / greatest * length * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def cut(text: str, room: int) -> str:
    """A text on one line, its end cut off where it is longer than the room."""
    text = one_line(text)
    return text if columns(text) <= room else beginning(text, room - 1) + "…"


def shorten(text: str, room: int) -> str:
    """A name on one line, cut in the middle where it is longer than the room: ends tell paths apart."""
    text = one_line(text)
    if columns(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{beginning(text, room - 1 - tail)}…{beginning(text[::-1], tail)[::-1]}"
