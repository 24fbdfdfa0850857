"""What the tests of conversion share: what was said in a session, as a list that every target can give."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mempalace
from mempalace.convert import convert
from mempalace.model import Image, Message, Origin, Role, Session, Text, Thinking, ToolResult, ToolUse
from mempalace.source import Source

FIXTURES = Path(__file__).parent / "fixtures"
SPOKEN = (Origin.PERSON, Origin.ASSISTANT, Origin.TOOL_RESULT, Origin.SUBAGENT)
READERS = {"claude-code": "claude-code", "codex": "codex", "openai": "chat", "markdown": "markdown"}
NOTE = re.compile(r"^\[image.*\](?:\n|\Z)", re.MULTILINE)


def sources(folder: Path) -> list[Path]:
    """Every file below a folder that a format claims by itself."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("expected.json", "README.md", "INDEX.md"):
            try:
                if mempalace.parse(path):
                    found.append(path)
            except mempalace.MempalaceError:
                continue
    return found


def sessions(path: Path) -> list[Session]:
    """The sessions of a file in which anybody says anything, each sub-agent as one too."""
    from mempalace.tree import flatten

    return [session for session in flatten(mempalace.parse(path)) if list(said(session))]


def converted(session: Session, target: str, folder: Path) -> Session:
    """The session as the target's file, written and read back by the format that claims it."""
    made = convert(session, target)
    path = folder / target / made.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.data)
    from mempalace.formats import registry

    known = registry.default().detect(path)
    assert known.name == READERS[target], f"claimed by {known.name}"
    (back,) = known.sessions(path)
    return back


def said(session: Session, *targets: str) -> Iterator[tuple[Any, ...]]:
    """What people, assistants and tools said: words, images, calls and results, in order.

    Calls are known by their number, for ids may change; of results those count whose call is there. The rules of the
    targets that the session went through are applied: names and inputs as an API takes them; in a chat, words before
    calls, no outcomes and no images of results; in a rollout, no outcome beside an image.
    """
    chat = "openai" in targets
    waiting: dict[str, list[int]] = {}
    number = 0
    for message in session.messages:
        if message.origin not in SPOKEN:
            continue
        atoms: list[tuple[Any, ...]] = []
        words: list[str] = []
        images: list[str] = []

        def close(message: Message = message, atoms: Any = atoms, words: Any = words, images: Any = images) -> None:
            text = "\n".join(words)
            if message.name and (text or images) and not text.startswith(f"[{message.name}] "):
                text = f"[{message.name}] {text}" if text else f"[{message.name}]"
            text = NOTE.sub("", text).strip("\n")
            if (text.strip() or images) and message.role is not Role.TOOL:
                atoms.append((str(message.role), text, tuple(images)))
            words.clear()
            images.clear()

        for block in message.content:
            if isinstance(block, Text):
                words += [block.text] if block.text.strip() else []
            elif isinstance(block, Image):
                found = picture(session, block)
                images += [found] if found and message.role is Role.USER else []
            elif isinstance(block, Thinking):
                if session.format == "codex" and targets[:1] == ("codex",):
                    close()  # it goes along, between what then are two messages
            elif isinstance(block, ToolUse):
                if not chat:
                    close()
                given = block.input if block.input is not None else {}
                name = re.sub(r"[^A-Za-z0-9_-]", "_", block.name) or "tool"
                atoms.append(("call", number, name, given if isinstance(given, dict) else {"raw": given}))
                waiting.setdefault(block.id, []).append(number)
                number += 1
            elif isinstance(block, ToolResult):
                close()
                calls = waiting.get(block.tool_use_id)
                if calls:
                    shown = [found for image in block.images if (found := picture(session, image))]
                    content = NOTE.sub("", block.content).strip("\n")
                    outcome = None if chat or (shown and "codex" in targets) else block.is_error
                    call = calls.pop(-1 if block.tool_use_id else 0)
                    atoms.append(("result", call, content, outcome, () if chat else tuple(shown)))
        close()
        yield from _words_first(atoms) if chat else atoms


def _words_first(atoms: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The atoms of a message as a chat has them: in each part that ends with results, words before calls."""
    part: list[tuple[Any, ...]] = []
    for atom in [*atoms, ("end",)]:
        if part and part[-1][0] == "result" and atom[0] != "result":
            yield from sorted(part, key=lambda atom: (atom[0] == "result") * 2 + (atom[0] == "call"))
            part = []
        part.append(atom)
    yield from sorted(part[:-1], key=lambda atom: atom[0] == "call")


def picture(session: Session, image: Image) -> str | None:
    """A hash of an image's bytes; None if the log does not hold them."""
    if image.offset is None:
        return None
    try:
        return hashlib.sha256(session.read_image(image)).hexdigest()[:12]
    except ValueError:
        return None  # cut off or blanked in the log


def source_of(data: bytes, name: str) -> Source:
    """Bytes as a source of that name."""
    return Source(Path(name), data)
