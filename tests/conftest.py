"""What every test gets: a home folder of its own, no network, golden files."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

FIXTURES = Path(__file__).parent / "fixtures"
_TOOL_VARIABLES = (
    "CLAUDE_SESSIONS_DIR",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "NO_COLOR",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regen", action="store_true", help="write the golden files again; read the diff")
    parser.addoption("--corpus", metavar="DIR", help="folder with samples/ and data/, for tests over real files")
    parser.addoption("--peer", metavar="PROGRAM", help="a session reader of others, to read what we convert")
    parser.addoption("--slow", action="store_true", help="run the full sizes too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="full size: run with --slow"))


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, and no variable that leads out of it."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    for name in list(os.environ):
        if name.startswith("MEMPALACE_") or name in _TOOL_VARIABLES:
            monkeypatch.delenv(name)
    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only loopback can be connected to. Patched at `connect`: a patched socket class breaks asyncio."""
    original = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and not _is_loopback(str(address[0])):
            raise AssertionError(f"a test connects to {address}")
        original(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session")
def corpus(request: pytest.FixtureRequest) -> Path:
    """The folder of --corpus; the test is skipped without it."""
    folder = request.config.getoption("--corpus")
    if folder is None:
        pytest.skip("needs --corpus=DIR")
    return Path(folder).resolve()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, Any], None]:
    """Compare JSON data with a golden file; with --regen write it."""
    regen = request.config.getoption("--regen")

    def check(path: Path, data: Any) -> None:
        text = orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        if regen:
            path.write_bytes(text)
        assert path.exists(), f"{path} is missing: run pytest --regen and read the diff"
        assert orjson.loads(path.read_bytes()) == orjson.loads(text)

    return check


@pytest.fixture
def palace(tmp_path: Path) -> Path:
    """Where the palace will be."""
    return tmp_path / "palace"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """An empty folder for logs."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder
