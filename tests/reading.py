"""What the tests of formats share: reading with an account that must add up, and golden data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mempalace.formats.base import Format
from mempalace.head import Head
from mempalace.model import Session
from mempalace.records import Ledger
from mempalace.source import Source
from mempalace.values import dumps

FIXTURES = Path(__file__).parent / "fixtures"

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


def cases(name: str) -> list[str]:
    """The case folders of a format."""
    return sorted(path.name for path in (FIXTURES / name).iterdir() if path.is_dir())


def read(format: Format, source: Path | Source) -> tuple[list[Session], Ledger]:
    """The sessions of a file and its ledger, which must add up."""
    ledger = Ledger()
    sessions = list(format.read(source if isinstance(source, Source) else Source(source), ledger))
    assert_accounted(sessions, [ledger])
    return sessions, ledger


def read_value(format: Format, value: Any, name: str = "a.json") -> tuple[list[Session], Ledger]:
    """The sessions of JSON data. The format is asked for its claim too, which must not raise."""
    source = Source(Path(name), dumps(value))
    assert 0 <= format.claims(Head.of(source)) <= 1
    return read(format, source)


def assert_accounted(sessions: list[Session], ledgers: list[Ledger]) -> None:
    """Every record is in exactly one message or named as not stored, and sessions survive their dictionary."""
    kept = sum(message.records for session in sessions for message in session.messages)
    assert sum(ledger.read for ledger in ledgers) == kept + sum(ledger.unstored for ledger in ledgers)
    for session in sessions:
        assert Session.from_dict(session.to_dict()) == session


def account(ledger: Ledger) -> dict[str, Any]:
    """A ledger as JSON data."""
    return {
        "read": ledger.read,
        "duplicate": ledger.duplicate,
        "damaged": ledger.damaged,
        "skipped": dict(sorted(ledger.skipped.items())),
        "problems": [[problem.kind, problem.message, problem.line] for problem in ledger.problems],
    }


def stable(session: Session, root: Path) -> dict[str, Any]:
    """A session as JSON data that is the same on every machine."""
    data = session.to_dict()
    data["path"] = session.path.relative_to(root).as_posix()
    return data


def json_like(keys: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Any JSON, made with a format's own keys more often than with others."""
    names = st.sampled_from(keys) | st.text(max_size=4)
    return st.recursive(
        SCALARS | st.sampled_from(keys),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6),
        max_leaves=24,
    )
