"""Conversations -> log files and exports of eight formats, small and in the shape of the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a person said and what was answered, with a command that was run in between."""

    person: str
    assistant: str
    command: str = ""
    output: str = ""


@dataclass(slots=True)
class Talk:
    """A conversation."""

    name: str
    format: str
    start: datetime
    project: str
    exchanges: list[Exchange]


def write(talks: Sequence[Talk], folder: Path) -> None:
    """Write every conversation in its format, in a folder for each."""
    for name, writer in WRITERS.items():
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        writer([talk for talk in talks if talk.format == name], home)


def _times(talk: Talk) -> list[tuple[Exchange, datetime]]:
    return [(exchange, talk.start + timedelta(minutes=3 * at)) for at, exchange in enumerate(talk.exchanges)]


def _iso(moment: datetime, seconds: int = 0) -> str:
    return f"{moment + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.000Z"


def _lines(path: Path, records: list[Any]) -> None:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")


def _claude_code(talks: list[Talk], folder: Path) -> None:
    for talk in talks:
        records: list[dict[str, Any]] = []

        def add(
            role: str, content: Any, moment: datetime, seconds: int, talk: Talk = talk, records: Any = records
        ) -> None:
            at = len(records)
            records.append(
                {
                    "parentUuid": f"{talk.name}-{at - 1}" if at else None,
                    "isSidechain": False,
                    "cwd": f"/home/ana/{talk.project}",
                    "sessionId": talk.name,
                    "version": "2.1.31",
                    "type": role,
                    "uuid": f"{talk.name}-{at}",
                    "timestamp": _iso(moment, seconds),
                    "message": {"role": role, "content": content}
                    | ({"id": f"msg_{talk.name}_{at}", "model": "claude-opus-4-5"} if role == "assistant" else {}),
                }
            )

        for exchange, moment in _times(talk):
            add("user", exchange.person, moment, 0)
            if exchange.command:
                call = f"toolu_{talk.name}_{len(records)}"
                use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": exchange.command}}
                add("assistant", [use], moment, 5)
                add("user", [{"type": "tool_result", "tool_use_id": call, "content": exchange.output}], moment, 9)
            add("assistant", [{"type": "text", "text": exchange.assistant}], moment, 20)
        _lines(folder / f"{talk.name}.jsonl", records)


def _codex(talks: list[Talk], folder: Path) -> None:
    for talk in talks:
        start = _iso(talk.start)
        meta = {"id": talk.name, "timestamp": start, "cwd": f"/home/ana/{talk.project}", "cli_version": "0.128.0"}
        records: list[dict[str, Any]] = [
            {"timestamp": start, "type": "session_meta", "payload": {**meta, "originator": "codex_cli_rs"}}
        ]
        for exchange, moment in _times(talk):
            payloads: list[tuple[int, str, dict[str, Any]]] = [
                (0, "response_item", _codex_message("user", "input_text", exchange.person)),
                (0, "event_msg", {"type": "user_message", "message": exchange.person}),
            ]
            if exchange.command:
                call = f"call_{len(records)}"
                arguments = json.dumps({"cmd": exchange.command})
                use = {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call}
                result = {"type": "function_call_output", "call_id": call, "output": exchange.output}
                payloads += [(5, "response_item", use), (9, "response_item", result)]
            payloads.append((20, "response_item", _codex_message("assistant", "output_text", exchange.assistant)))
            records += [
                {"timestamp": _iso(moment, seconds), "type": kind, "payload": payload}
                for seconds, kind, payload in payloads
            ]
        _lines(folder / f"rollout-{talk.name}.jsonl", records)


def _codex_message(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _gemini(talks: list[Talk], folder: Path) -> None:
    for talk in talks:
        head = {"sessionId": talk.name, "projectHash": "b1946ac9" * 8, "startTime": _iso(talk.start), "kind": "main"}
        records: list[dict[str, Any]] = [{**head, "directories": [f"/home/ana/{talk.project}"]}]
        for exchange, moment in _times(talk):
            at = len(records)
            person = {"id": f"m{at}", "timestamp": _iso(moment), "type": "user", "content": [{"text": exchange.person}]}
            answer: dict[str, Any] = {"id": f"m{at + 1}", "timestamp": _iso(moment, 20), "type": "gemini"}
            answer["content"] = exchange.assistant
            if exchange.command:
                response = {"name": "run_shell_command", "response": {"output": exchange.output}}
                answer["toolCalls"] = [
                    {
                        "id": f"run-{at}",
                        "name": "run_shell_command",
                        "args": {"command": exchange.command},
                        "result": [{"functionResponse": response}],
                        "status": "success",
                        "timestamp": _iso(moment, 9),
                    }
                ]
            records += [person, answer]
        _lines(folder / f"session-{talk.name}.jsonl", records)


def _chatgpt(talks: list[Talk], folder: Path) -> None:
    found = []
    for talk in talks:
        above = f"{talk.name}-r"
        mapping: dict[str, Any] = {above: {"id": above, "message": None, "parent": None, "children": []}}
        said = [
            (role, text, moment)
            for exchange, moment in _times(talk)
            for role, text in (("user", exchange.person), ("assistant", exchange.assistant))
        ]
        for at, (role, text, moment) in enumerate(said):
            key = f"{talk.name}-{at}"
            content = {"content_type": "text", "parts": [text]}
            message = {"id": key, "author": {"role": role}, "create_time": moment.timestamp() + at, "content": content}
            mapping[above]["children"].append(key)
            mapping[key] = {"id": key, "message": {**message, "metadata": {}}, "parent": above, "children": []}
            above = key
        shown = {"title": f"About {talk.project}", "create_time": talk.start.timestamp(), "conversation_id": talk.name}
        found.append({**shown, "update_time": talk.start.timestamp() + 900, "mapping": mapping, "current_node": above})
    (folder / "conversations.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def _claude_ai(talks: list[Talk], folder: Path) -> None:
    found = []
    for talk in talks:
        messages = [
            {
                "uuid": f"{talk.name}-{at}-{sender}",
                "sender": sender,
                "text": text,
                "content": [{"type": "text", "text": text}],
                "created_at": _iso(moment, 0 if sender == "human" else 20),
                "attachments": [],
                "files": [],
            }
            for at, (exchange, moment) in enumerate(_times(talk))
            for sender, text in (("human", exchange.person), ("assistant", exchange.assistant))
        ]
        head = {"uuid": talk.name, "name": f"About {talk.project}", "created_at": _iso(talk.start)}
        found.append({**head, "chat_messages": messages})
    (folder / "conversations.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def _slack(talks: list[Talk], folder: Path) -> None:
    people = {"UANA": "ana", "UBOB": "bob"}
    days: dict[str, list[dict[str, Any]]] = {}
    for number, talk in enumerate(talks):
        thread = f"{int(talk.start.timestamp())}.{number:06}"
        for exchange, moment in _times(talk):
            for user, text, seconds in (("UANA", exchange.person, 0), ("UBOB", exchange.assistant, 20)):
                safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                ts = f"{int(moment.timestamp()) + seconds}.{number:06}"
                message = {"type": "message", "user": user, "text": safe, "ts": ts, "thread_ts": thread}
                days.setdefault(f"{moment:%Y-%m-%d}", []).append(message)
    (folder / "users.json").write_text(json.dumps([{"id": key, "name": name} for key, name in people.items()]))
    (folder / "channels.json").write_text(json.dumps([{"id": "C1", "name": "general"}]))
    (folder / "general").mkdir(exist_ok=True)
    for day, messages in days.items():
        (folder / "general" / f"{day}.json").write_text(json.dumps(messages, ensure_ascii=False), encoding="utf-8")


def _chat(talks: list[Talk], folder: Path) -> None:
    for talk in talks:
        messages = [
            {"role": role, "content": text, "created_at": _iso(moment, seconds)}
            for exchange, moment in _times(talk)
            for role, text, seconds in (("user", exchange.person, 0), ("assistant", exchange.assistant, 20))
        ]
        text = json.dumps({"id": talk.name, "messages": messages}, ensure_ascii=False)
        (folder / f"{talk.name}.json").write_text(text, encoding="utf-8")


def _markdown(talks: list[Talk], folder: Path) -> None:
    for talk in talks:
        parts = [f"## User\n\n{one.person}\n\n## Assistant\n\n{one.assistant}\n" for one in talk.exchanges]
        (folder / f"{talk.name}.md").write_text("\n".join(parts), encoding="utf-8")


WRITERS: dict[str, Callable[[list[Talk], Path], None]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini": _gemini,
    "chatgpt": _chatgpt,
    "claude-ai": _claude_ai,
    "slack": _slack,
    "chat": _chat,
    "markdown": _markdown,
}
