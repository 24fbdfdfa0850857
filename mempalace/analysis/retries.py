"""Commands that failed and were tried again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from mempalace.analysis.calls import Paired, command_of
from mempalace.analysis.parts import RetryHotspot

FEWEST_ATTEMPTS = 3
FEWEST_FAILURES = 2

# Programs whose first word says what they do: `git push` and `git log` are two commands. `npm run lint` has two.
_WITH_VERB = frozenset(
    {
        *("apt", "apt-get", "brew", "bun", "cargo", "deno", "dnf", "docker", "dotnet", "gh", "git", "go", "gradle"),
        *("helm", "kubectl", "mise", "mvn", "nix", "npm", "npx", "pacman", "pip", "pip3", "pnpm", "poetry", "rustup"),
        *("systemctl", "terraform", "uv", "yarn"),
    }
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_BORDERS = frozenset({"&&", ";", "||"})
_SIGN = re.compile(r"""\\.|'[^']*'?|"(?:\\.|[^"\\])*"?|&&|;|\|\|""", re.DOTALL)  # what is quoted, or a border
_HERE = re.compile(
    r"(<<-?[ \t]*(['\"]?)(\w+)\2[^\n]*\n).*?^[ \t]*\3[ \t]*$", re.DOTALL | re.MULTILINE
)  # a text given inline
_VALUED = frozenset({"-C", "-c", "--git-dir", "--namespace", "--prefix", "--work-tree", "-n"})  # take the next word


def retry_hotspots(paired: Paired) -> tuple[RetryHotspot, ...]:
    """Command patterns of a session with at least 3 attempts, of which at least 2 failed."""
    attempts: dict[str, int] = {}
    failures: dict[str, int] = {}
    for call in paired.calls:
        command = command_of(call.use)
        for pattern in patterns(command) if command else ():
            attempts[pattern] = attempts.get(pattern, 0) + 1
            failures[pattern] = failures.get(pattern, 0) + call.is_error
    return merge(
        RetryHotspot(pattern, count, failures[pattern], 1)
        for pattern, count in attempts.items()
        if count >= FEWEST_ATTEMPTS and failures[pattern] >= FEWEST_FAILURES
    )


def merge(hotspots: Iterable[RetryHotspot]) -> tuple[RetryHotspot, ...]:
    """Hotspots of the same pattern added: the most failures first."""
    total: dict[str, RetryHotspot] = {}
    for one in hotspots:
        known = total.get(one.pattern, RetryHotspot(one.pattern, 0, 0, 0))
        total[one.pattern] = RetryHotspot(
            one.pattern, known.attempts + one.attempts, known.failures + one.failures, known.sessions + one.sessions
        )
    return tuple(sorted(total.values(), key=lambda one: (-one.failures, -one.attempts, one.pattern)))


def patterns(command: str) -> list[str]:
    """The pattern of every command of a line. All of them share its fate: a log tells one outcome per call.

    A `cd` before other commands is not counted, for its line's failure is hardly ever its own.
    """
    found = [pattern for part in split(command) if (pattern := pattern_of(part)) is not None]
    return [pattern for pattern in found if pattern != "cd"] or found


def split(command: str) -> list[str]:
    """The parts of a command line between `&&`, `;` and `||`; not those in quotes or in a here-document."""
    command = _HERE.sub(r"\1", command)
    parts: list[str] = []
    start = 0
    for match in _SIGN.finditer(command):
        if match[0] in _BORDERS:
            parts.append(command[start : match.start()])
            start = match.end()
    parts.append(command[start:])
    return [part.strip() for part in parts if part.strip()]


def pattern_of(part: str) -> str | None:
    """The program and, for those that have several uses, which: `pytest`, `git push`, `npm run lint`.

    Without lines of comment, assignments before it, and the program's folder. None if nothing is left.
    """
    lines = part.replace("\\\n", " ").split("\n")
    words = " ".join(line for line in lines if not line.lstrip().startswith("#")).split()
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    if not words:
        return None
    program = words[0].replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or words[0]
    rest = words[1:]
    if re.fullmatch(r"python[\d.]*", program) and len(rest) > 1 and rest[0] == "-m":
        return f"{program} -m {rest[1]}"
    if program in _WITH_VERB:
        verbs = [
            word for before, word in pairwise([program, *rest]) if not word.startswith("-") and before not in _VALUED
        ]
        return " ".join([program, *verbs[: 2 if verbs[:1] == ["run"] else 1]])
    return program
