"""A format of another package, really installed, is seen by everything that ours are seen by."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mempalace
from mempalace.formats import registry

PACKAGE = Path(__file__).parent / "plugin"
KILN = "KILN k-17 /w/kiln\nme: why does KILN-OVERHEAT fire\nit: the probe sits too high\n"
LOOM = "LOOM l-4 /w/loom\nme: which thread is SELVEDGE-RED\nit: the outermost one\n"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was built and installed from its source, without a network."""
    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, *offline, str(source)], check=True, capture_output=True)
    return target


@pytest.fixture
def run(site: Path, home: Path, tmp_path: Path) -> Run:
    """A command line in a process of its own, where the package is installed; its JSON or its text."""
    for name, text in (("kiln", KILN), ("loom", LOOM)):
        (home / f".{name}").mkdir()
        (home / f".{name}" / f"{name}-1.{name}").write_text(text)
    code = "from mempalace.cli import main; main()"
    paths = os.pathsep.join([str(site), str(Path(mempalace.__file__).parent.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "MEMPALACE_PALACE_PATH": str(tmp_path / "palace")}

    def command(*words: str, code: str = code) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout) if "--json" in words else done.stdout

    return command


def test_it_is_listed_among_the_formats(run: Run) -> None:
    formats = run("formats", "--json")["formats"]
    assert [(one["name"], one["files"]) for one in formats][-2:] == [("kiln", 1), ("loom", 1)]


@pytest.mark.parametrize(("name", "own", "words"), [("kiln", "k-17", "KILN-OVERHEAT"), ("loom", "l-4", "SELVEDGE-RED")])
def test_its_sessions_are_listed_shown_mined_found_and_restored(
    run: Run, home: Path, name: str, own: str, words: str
) -> None:
    everywhere = run("sessions", "list", "--all-projects", "--json")["sessions"]
    assert {one["session_id"] for one in everywhere} == {"k-17", "l-4"}
    (listed,) = run("sessions", "list", "--project", f"/w/{name}", "--json")["sessions"]
    assert (listed["session_id"], listed["format"], listed["project"]) == (own, name, f"/w/{name}")
    (found,) = run("sessions", "list", "--all-projects", "--grep", words, "--json")["sessions"]
    assert found["session_id"] == own
    assert run("sessions", "show", own, "--json")["format"] == name
    assert words in run("sessions", "show", own)

    assert run("mine", "--json")["sessions"] == {"new": 2, "updated": 0}
    (hit,) = run("search", words, "--tool", name, "--json")["results"]
    assert (hit["session_id"], hit["format"]) == (own, name)
    shutil.rmtree(home / f".{name}")
    assert run("show", own, "--json")["metadata"]["session_id"] == own
    assert run("sessions", "show", own, "--json")["metadata"]["session_id"] == own


def test_the_library_sees_it(run: Run, home: Path) -> None:
    code = (
        "import json, sys, mempalace; path = sys.argv[1]; from mempalace.formats import registry;"
        "print(json.dumps([mempalace.formats()[-2:], [s.key for s in mempalace.parse(path)],"
        "[s.key for s in mempalace.parse_str(open(path).read())], registry.default().get('kiln').detect(path),"
        "[f.session_id for f in mempalace.list_sessions(format='kiln')], mempalace.find_session('k-1').key]))"
    )
    found = run(str(home / ".kiln" / "kiln-1.kiln"), "--json", code=code)
    assert found == [["kiln", "loom"], ["k-17"], ["k-17"], 1.0, ["k-17"], "k-17"]


def test_one_that_is_registered_at_run_time_is_seen_alike(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    import kiln_formats  # type: ignore[import-not-found]

    monkeypatch.setattr(registry, "_default", registry.Registry(registry.builtin()))
    (home / ".kiln").mkdir()
    (home / ".kiln" / "kiln-1.kiln").write_text(KILN)
    assert mempalace.list_sessions() == []
    mempalace.register(kiln_formats.Kiln())
    assert [file.session_id for file in mempalace.list_sessions("kiln")] == ["k-17"]
    assert mempalace.find_session("k-17").message_count == 2
    with mempalace.Palace(tmp_path / "palace") as palace:
        assert palace.mine().states["new"] == 1


def test_one_that_cannot_be_loaded_is_named(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    (broken / "kiln_formats.py").write_text("import nowhere_to_be_found\n")
    paths = os.pathsep.join([str(broken), str(Path(mempalace.__file__).parent.parent)])
    done = subprocess.run(
        [sys.executable, "-c", "from mempalace.cli import main; main()", "formats", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "plugin"
    assert "kiln-formats" in error["message"]
    assert "nowhere_to_be_found" in error["message"]
    assert "uninstall kiln-formats" in error["hint"]
