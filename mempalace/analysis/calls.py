"""Which result answers which call: paired by id, across messages and turns."""

from __future__ import annotations

from dataclasses import dataclass, field

from mempalace.model import Session, ToolResult, ToolUse

NO_CALL = "(no call)"


@dataclass(slots=True)
class Answer:
    """A tool result; `turn` and `place` (the number of the block in the session, from 0) say where it stands."""

    result: ToolResult
    turn: int
    place: int


@dataclass(slots=True)
class Call:
    """A tool call with what came back. `message` is the number of its message in the session, from 0."""

    use: ToolUse
    turn: int
    message: int
    place: int
    answers: list[Answer] = field(default_factory=list)

    @property
    def is_error(self) -> bool:
        """Whether the log says of one of its results that it is an error."""
        return any(answer.result.is_error is True for answer in self.answers)

    @property
    def output_chars(self) -> int:
        """Characters of all its results."""
        return sum(len(answer.result.content) for answer in self.answers)


@dataclass(slots=True)
class Paired:
    """All calls of a session in order; all results in order, each with its call, or None if no call has its id."""

    calls: list[Call]
    answers: list[tuple[Answer, Call | None]]


def pair(session: Session) -> Paired:
    """The calls of a session with their results.

    A result belongs to the last call before it with its id; some tools number their calls anew in each turn. Where
    there is none before it, it belongs to the first one after it. An empty id pairs nothing.
    """
    calls: list[Call] = []
    answers: list[Answer] = []
    by_id: dict[str, list[Call]] = {}
    place = message_number = 0
    for turn_number, turn in enumerate(session.turns):
        for message in turn.messages:
            for block in message.content:
                if isinstance(block, ToolUse):
                    call = Call(block, turn_number, message_number, place)
                    calls.append(call)
                    if block.id:
                        by_id.setdefault(block.id, []).append(call)
                elif isinstance(block, ToolResult):
                    answers.append(Answer(block, turn_number, place))
                place += 1
            message_number += 1
    return Paired(calls, [(answer, _call_of(answer, by_id)) for answer in answers])


def _call_of(answer: Answer, by_id: dict[str, list[Call]]) -> Call | None:
    same = by_id.get(answer.result.tool_use_id)
    if not same:
        return None
    call = next((call for call in reversed(same) if call.place < answer.place), same[0])
    call.answers.append(answer)
    return call


def command_of(use: ToolUse) -> str | None:
    """The shell command that a call runs, if it runs one.

    Claude Code `Bash(command)`, Codex `shell(command: [...])` and `exec_command(cmd)`, Gemini
    `run_shell_command(command)`. Of an argument vector `bash -lc TEXT` it is the text.
    """
    if not isinstance(use.input, dict):
        return None
    value = use.input.get("command", use.input.get("cmd"))
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        is_shell = len(value) == 3 and value[1].startswith("-") and value[1].endswith("c")
        return str(value[2]) if is_shell else " ".join(value)
    return value if isinstance(value, str) else None
