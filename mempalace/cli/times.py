"""Times as people give them on the command line."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from mempalace.errors import UsageError

_SPANS = {"h": "hours", "d": "days", "w": "weeks"}


def span(text: str) -> datetime:
    """The moment that long ago: 12h, 7d, 4w. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,5})\s*([hdw])", text.strip())
    if not match:
        raise UsageError(f"not a span of time: {text!r}", hint="write it like 12h, 7d or 4w")
    try:
        return datetime.now().astimezone() - timedelta(**{_SPANS[match[2]]: int(match[1])})
    except OverflowError:
        raise UsageError(f"that is too long ago: {text!r}") from None


def moment(text: str | None, *, end: bool) -> datetime | None:
    """A day or a time in the local zone; a day (or a week) as an end includes all of it. Raises UsageError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"not a date: {text!r}", hint="write it like 2026-02-03 or 2026-02-03T14:00") from None
    try:
        if end and re.fullmatch(r"[\dW-]+", text):
            found += timedelta(days=7 if re.fullmatch(r"\d{4}-?W\d\d", text) else 1)
        return found.astimezone()
    except (OverflowError, ValueError, OSError):
        raise UsageError(f"that is beyond all dates: {text!r}") from None
