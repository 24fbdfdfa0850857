"""Makes ChatGPT exports of any size, shaped like the vendor's: one array on one line, ASCII with escapes.

python tests/exports.py export.json --conversations 5000 --bytes 200000
"""

from __future__ import annotations

import argparse
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_PROSE = """
the of to and in that is for with as on be at by this from or an we can not but they which their all would there
what so up out if about who get me when make like time just know take people into year your good some could them
see other than then now look only come its over think also back after use two how our work first well way even new
want because any these give day most us index query cache deploy branch token schema vector
"""
_WORDS = _PROSE.split()
_OTHER = ("größe", "naïve", "данные", "検索", "你好", "🙂", "→")
_STARTED = 1_672_531_200


class _Tree:
    """A conversation that grows node by node."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.at = _STARTED + number * 3_600.25
        self.size = 0
        self.current = f"{number:06d}-root"
        self.mapping: dict[str, Any] = {
            self.current: {"id": self.current, "message": None, "parent": None, "children": []}
        }

    def add(self, role: str, content: dict[str, Any], name: str | None = None, recipient: str = "all") -> None:
        """A message below the current one."""
        key = f"{self.number:06d}-{len(self.mapping):05d}"
        self.at += 7.5
        message = {
            "id": key,
            "author": {"role": role, "name": name, "metadata": {}},
            "create_time": self.at,
            "update_time": None,
            "content": content,
            "status": "finished_successfully",
            "end_turn": None,
            "weight": 1.0,
            "metadata": {"model_slug": "gpt-4o", "timestamp_": "absolute", "message_type": None, "citations": []},
            "recipient": recipient,
            "channel": None,
        }
        self.mapping[key] = {"id": key, "message": message, "parent": self.current, "children": []}
        self.mapping[self.current]["children"].append(key)
        self.current = key
        self.size += 700 + len(json.dumps(content))


def conversation(number: int, size: int, random_: random.Random) -> dict[str, Any]:
    """One conversation of about `size` bytes of JSON: with regenerated answers, calls of tools and thoughts."""
    tree = _Tree(number)
    started = tree.at
    while tree.size < size:
        tree.add("user", _text(random_, 5, 60))
        asked = tree.current
        kind = random_.random()
        if kind < 0.1:
            tree.add("assistant", _text(random_, 60, 400))
            tree.current = asked  # that answer was regenerated
        elif kind < 0.2:
            code = {"content_type": "code", "language": "python", "text": "print(1)"}
            tree.add("assistant", code, recipient="python")
            tree.add("tool", {"content_type": "execution_output", "text": "1"}, name="python")
        elif kind < 0.25:
            thought = {"summary": "Looking", "content": _prose(random_, 20)}
            tree.add("assistant", {"content_type": "thoughts", "thoughts": [thought]})
        tree.add("assistant", _text(random_, 60, 500))
    return {
        "title": f"Conversation {number}",
        "create_time": started,
        "update_time": tree.at,
        "mapping": tree.mapping,
        "moderation_results": [],
        "current_node": tree.current,
        "conversation_id": f"c-{number:06d}",
        "default_model_slug": "gpt-4o",
        "is_archived": False,
        "gizmo_id": None,
        "id": f"c-{number:06d}",
    }


def _text(random_: random.Random, least: int, most: int) -> dict[str, Any]:
    return {"content_type": "text", "parts": [_prose(random_, random_.randint(least, most))]}


def _prose(random_: random.Random, words: int) -> str:
    chosen = random_.choices(_WORDS, k=words)
    if words > 30:
        chosen.insert(words // 2, random_.choice(_OTHER))
        chosen.insert(words // 3, '\n\n```python\nvalue = {"key": [1, 2]}\n```\n\n')
    return " ".join(chosen) + f" #{random_.getrandbits(40):x}"


def pieces(conversations: int, size: int, seed: int = 1) -> Iterator[bytes]:
    """The bytes of an export, conversation by conversation."""
    random_ = random.Random(seed)
    for number in range(conversations):
        yield b"[" if number == 0 else b", "
        yield json.dumps(conversation(number, size, random_)).encode()
    yield b"]" if conversations else b"[]"


def write(path: Path, conversations: int, size: int, seed: int = 1) -> None:
    """Write an export as conversations.json, or as a zip if the path ends so."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("user.json", "{}")
            archive.writestr("chat.html", "<html></html>")
            with archive.open("conversations.json", "w", force_zip64=True) as stream:
                _copy(conversations, size, seed, stream)
    else:
        with path.open("wb") as stream:
            _copy(conversations, size, seed, stream)


def _copy(conversations: int, size: int, seed: int, stream: Any) -> None:
    target: BinaryIO = stream
    for piece in pieces(conversations, size, seed):
        target.write(piece)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--conversations", type=int, default=5000)
    parser.add_argument("--bytes", type=int, default=200_000, help="of JSON in each conversation")
    options = parser.parse_args()
    write(options.path, options.conversations, options.bytes)


if __name__ == "__main__":
    main()
