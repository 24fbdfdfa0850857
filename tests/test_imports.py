"""The house: a module imports only from its left, heavy packages only where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mempalace

ROOT = Path(mempalace.__file__).parent

# Each group may import from itself and from all before it.
ORDER = [
    {"errors"},
    {"models"},
    {"values"},
    {"source"},
    {"records"},
    {"head"},
    {"documents", "folders"},
    {"model", "model_data"},
    {"tree"},
    {"transcript"},
    {"convert"},
    {"analysis"},
    {"formats"},
    {"normalize"},
    {"discover"},
    {"wordpiece"},
    {"chunk"},
    {"embedding"},
    {"late", "encoder", "embedders"},
    {"palace"},
    {"query", "summary", "ranking"},
    {"reading"},
    {"miner"},
    {"hits", "scoring"},
    {"search"},
    {"lookup"},
    {"located", "resume"},
    {"library"},
    {"scripts"},
    {"cli", "__main__"},
]
OWNERS = {
    "chromadb": {"palace/vectors.py", "embedders.py"},
    "tantivy": {"palace/entries.py", "palace/lexical.py", "palace/tokens.py"},
    "click": {"cli"},
    "rich": {"cli"},
    "lupa": {"scripts/lua.py"},
}


def modules() -> Iterator[Path]:
    return (path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def group(name: str) -> int:
    return next(index for index, names in enumerate(ORDER) if name in names)


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_every_module_has_its_place() -> None:
    assert {part(path) for path in modules()} == set().union(*ORDER)


def test_modules_import_only_from_their_left() -> None:
    places = set().union(*ORDER)
    wrong = []
    for path in modules():
        for name in imports(path):
            package, _, rest = name.partition(".")
            imported = rest.partition(".")[0]
            if package == "mempalace" and imported in places and group(imported) > group(part(path)):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_formats_never_import_one_another() -> None:
    wrong = []
    shared = {"base", "registry"}
    for path in sorted((ROOT / "formats").rglob("*.py")):
        own = path.relative_to(ROOT / "formats").parts[0].removesuffix(".py")
        if own in {"__init__", "registry"}:
            continue
        for name in imports(path):
            words = name.split(".")
            if words[:2] == ["mempalace", "formats"] and len(words) > 2 and words[2] not in shared | {own}:
                wrong.append(f"{path.name} imports {name}")
    assert not wrong


def test_statistics_know_the_model_and_nothing_else() -> None:
    allowed = {"errors", "model", "transcript", "analysis"}
    names = {name for path in (ROOT / "analysis").rglob("*.py") for name in imports(path) if "mempalace" in name}
    assert {name.split(".")[1] for name in names} <= allowed
    others = (path for path in modules() if part(path) not in {"analysis", "scripts", "cli"})
    assert not [path.name for path in others if any(name.startswith("mempalace.analysis") for name in imports(path))]


def test_heavy_packages_have_one_owner() -> None:
    for package, owners in OWNERS.items():
        users = {
            str(path.relative_to(ROOT))
            for path in modules()
            if any(name.split(".")[0] == package for name in imports(path))
        }
        assert all(any(user == owner or user.startswith(f"{owner}/") for owner in owners) for user in users), users


def test_no_module_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {count}"
        for path in modules()
        if (count := len(path.read_text().splitlines())) > 400
        and "400 lines" not in (ast.get_docstring(ast.parse(path.read_text())) or "")
    ]
    assert not long


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mempalace.cli import group; group.main(['--help'], standalone_mode=False);"
        "print([name for name in ('chromadb', 'onnxruntime', 'numpy', 'tantivy', 'rich', 'orjson', 'sqlite3')"
        " if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_library_costs_nothing_to_import() -> None:
    code = "import sys, mempalace; print(sorted(name for name in sys.modules if name.startswith('mempalace')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['mempalace']"
