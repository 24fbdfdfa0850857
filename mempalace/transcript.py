"""Session -> transcript: the verbatim text of a conversation, and the span of every part of it.

    > a line that a person typed
    the assistant's words, bare

    [Bash] ls -la
    → what it printed

    [thinking]
    ...

Messages are parted by one blank line. What is not dialogue stands behind a header line in brackets; a tool
call is such a header, with the rest of its input below, and its result follows behind an arrow. NUL
characters, which no store keeps, become U+FFFD; nothing else is changed or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from mempalace.model import (
    DIALOGUE,
    Image,
    Message,
    Origin,
    Role,
    Session,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from mempalace.values import dumps

MARK = "> "
ARROW = "→ "
GAP = "\n\n"
_TITLE_CHARS = 120


class Span(NamedTuple):
    """A part of a transcript: characters `start` to `end` come from one message and one origin.

    `message` counts the messages of the transcript from 0. A message with text and a tool call has two spans.
    The blank line behind a span belongs to none.
    """

    start: int
    end: int
    message: int
    role: Role
    origin: Origin


class Transcript(str):
    """A `str` that also knows the sessions it shows and the span of every part.

    A slice or a sum of it is a plain `str`.
    """

    sessions: tuple[Session, ...]
    spans: tuple[Span, ...]

    def __new__(cls, text: str, sessions: Iterable[Session] = (), spans: Iterable[Span] = ()) -> Transcript:
        """A transcript of that text."""
        transcript = super().__new__(cls, text)
        transcript.sessions = tuple(sessions)
        transcript.spans = tuple(spans)
        return transcript


def render(session: Session, keep: Callable[[Origin], bool] | None = None) -> Transcript:
    """The transcript of a session (not of its sub-agents) with every message in it.

    `keep` chooses by origin which parts are shown; without it all are.
    """
    texts: list[str] = []
    spans: list[Span] = []
    at = 0
    for index, message in enumerate(session.messages):
        for origin, text in _parts(message):
            if keep is not None and not keep(origin):
                continue
            spans.append(Span(at, at + len(text), index, message.role, origin))
            texts.append(text)
            at += len(text) + len(GAP)
    return Transcript(GAP.join(texts), (session,), spans)


def render_all(sessions: Iterable[Session], keep: Callable[[Origin], bool] | None = None) -> Transcript:
    """The transcripts of several sessions, parted by a blank line; spans count all messages through."""
    shown: list[Transcript] = []
    spans: list[Span] = []
    kept: list[Session] = []
    at = messages = 0
    for session in sessions:
        transcript = render(session, keep)
        kept.append(session)
        if transcript:
            shown.append(transcript)
            spans += [
                span._replace(start=span.start + at, end=span.end + at, message=span.message + messages)
                for span in transcript.spans
            ]
            at += len(transcript) + len(GAP)
        messages += session.message_count
    return Transcript(GAP.join(shown), kept, spans)


def is_default(origin: Origin) -> bool:
    """The default view: dialogue with tool calls and their results."""
    return origin in DIALOGUE or origin in (Origin.TOOL_CALL, Origin.TOOL_RESULT, Origin.SUBAGENT)


def first_words(session: Session) -> str | None:
    """The first line that a person (or, in a sub-agent, its parent) said, as a title of at most 120 characters."""
    for message in session.messages:
        if message.origin in (Origin.PERSON, Origin.SUBAGENT):
            for block in message.content:
                if isinstance(block, Text) and (words := block.text.split()):
                    line = " ".join(words)
                    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1] + "…"
    return None


def _parts(message: Message) -> Iterator[tuple[Origin, str]]:
    """The parts of a message with the origin of each: neighbouring words and images make one."""
    words: list[str] = []
    for block in message.content:
        if isinstance(block, Text):
            words.append(block.text)
        elif isinstance(block, Image):
            words.append(image_note(block))
        else:
            if words:
                yield message.origin, _render_words(message, "\n".join(words))
                words = []
            yield _render_block(message, block)
    if words:
        yield message.origin, _render_words(message, "\n".join(words))


def _render_words(message: Message, text: str) -> str:
    text = _storable(text)
    if message.name:
        text = f"[{_one_line(message.name)}] {text}"
    if message.origin in DIALOGUE:
        return _quote(text) if message.role == Role.USER else text
    if message.origin == Origin.ABANDONED and message.role == Role.USER:
        text = _quote(text)
    return f"[{message.origin}]\n{text}"


def _render_block(message: Message, block: ToolUse | ToolResult | Thinking) -> tuple[Origin, str]:
    label = "[abandoned]\n" if message.origin == Origin.ABANDONED else ""
    if isinstance(block, Thinking):
        origin, text = Origin.THINKING, f"[thinking]\n{block.text}"
    elif isinstance(block, ToolUse):
        origin, text = Origin.TOOL_CALL, render_call(block)
    else:
        error = "[error] " if block.is_error else ""
        notes = [image_note(image) for image in block.images]
        shown = "\n".join([block.content, *notes] if block.content else notes)
        origin, text = Origin.TOOL_RESULT, f"{ARROW}{error}{shown}"
    return (Origin.ABANDONED if label else origin), _storable(label + text)


def _quote(text: str) -> str:
    return MARK + text.replace("\n", "\n" + MARK)


def unquote(text: str) -> str:
    """The text of a person's span without the marks at the line starts."""
    return text.removeprefix(MARK).replace("\n" + MARK, "\n")


def _storable(text: str) -> str:
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def _one_line(text: str) -> str:
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def image_note(image: Image) -> str:
    """What stands in the text for an image or another blob."""
    words = ["image"]
    words += [image.media_type] if image.media_type else []
    words += [image.ref] if image.ref else []
    words += [f"{image.size} bytes"] if image.size is not None else []
    return f"[{' '.join(words)}]"


# --- tool calls ---------------------------------------------------------------------------------------------

# The input fields that say in one line what a call does, for tools whose names are known; for others, the
# first of the common ones that the call has.
_SUBJECTS: dict[str, tuple[str, ...]] = {
    "Bash": ("command",),
    "Read": ("file_path",),
    "Grep": ("pattern",),
    "Glob": ("pattern",),
}
_COMMON_SUBJECTS = ("file_path", "path", "command", "cmd", "pattern", "query", "url")


def render_call(call: ToolUse) -> str:
    """`[Name] subject` and below it every other field of the input, verbatim."""
    if not isinstance(call.input, dict):
        shown = "" if call.input is None else _value(call.input)
        return f"[{call.name}] {shown}".rstrip(" ")
    fields = dict(call.input)
    header = _call_header(call.name, fields)
    rest = [f"{name}: {_value(value)}" for name, value in fields.items()]
    return "\n".join([header, *rest])


def _call_header(name: str, fields: dict[str, Any]) -> str:
    """The header line; the fields that it shows are taken out of `fields`."""
    for subject in _SUBJECTS.get(name, _COMMON_SUBJECTS):
        value = fields.get(subject)
        if value is None or value == "":
            continue
        shown = _command(value)
        if shown is None:
            continue
        del fields[subject]
        if name == "Read":
            return f"[Read {shown}{_line_range(fields)}]"
        if name in ("Edit", "Write", "MultiEdit", "NotebookEdit"):
            return f"[{name} {shown}]"
        if name in ("Grep", "Glob") and isinstance(fields.get("path"), str):
            return f"[{name}] {shown} in {fields.pop('path')}"
        return f"[{name}] {shown}"
    return f"[{name}]"


def _command(value: Any) -> str | None:
    """A text, or an argument vector as one line; None for what belongs below the header."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return None


def _line_range(fields: dict[str, Any]) -> str:
    offset, limit = fields.get("offset"), fields.get("limit")
    if type(offset) is not int or type(limit) is not int:
        return ""
    del fields["offset"], fields["limit"]
    return f":{offset}-{offset + limit - 1}" if limit > 0 else f":{offset}"


def _value(value: Any) -> str:
    """A text as it is (a longer one below its name), anything else as compact JSON."""
    if isinstance(value, str):
        return f"\n{value}" if "\n" in value else value
    return dumps(value).decode()
