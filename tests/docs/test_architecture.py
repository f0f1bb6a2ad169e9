"""The picture of the house is the layers that import-linter holds, and one room starts processes."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = "rooms: arrows of import point down only"


def layers() -> list[set[str]]:
    """From the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["name"] == LAYERS)
    return [{room.strip() for room in layer.split("|")} for layer in contract["layers"]]


def test_the_picture_of_the_house_shows_the_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    floors = re.findall(r"^│ ([\w /]+?) *│ .+│$", text, re.MULTILINE)
    assert [set(floor.split(" / ")) for floor in floors] == layers()


def test_no_contract_has_an_exception() -> None:
    assert "ignore_imports" not in (ROOT / "pyproject.toml").read_text()


# Functions that make a process, or another one of this one; and all of these modules:
STARTS = {
    "Popen", "ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell", "execl", "execle", "execlp",
    "execlpe", "execv", "execve", "execvp", "execvpe", "fork", "forkpty", "popen", "posix_spawn", "posix_spawnp",
    "spawnl", "spawnle", "spawnv", "spawnve", "subprocess_exec", "subprocess_shell", "system",
}  # fmt: skip
MODULES = ("subprocess", "multiprocessing", "pty")
# Nothing of these is kept alive.
OTHERS = {
    "adapters/testkit/other_process.py": "a test: asks an adapter once more, in another process",
    "cli/spark/demo.py": "runs the commands that it shows, one after another",
    "config/own_process.py": "one call, for code that may loop or crash; a time limit ends it",
    "eventstore/key_finding/process_finder.py": "a helper on another core; one that ends is done without",
    "lab": "makes faults, and uses the commands of an operator from outside",
    "spark/worker_python.py": "asks a Python for its version",
}


def test_only_one_room_starts_processes_that_are_kept_alive() -> None:
    found = {str(path.relative_to(ROOT / "src/photon")) for path in _sources() if _starts(path)}
    rooms = {path.partition("/")[0] if path.startswith("lab/") else path for path in found}
    assert {each for each in rooms if not each.startswith("supervision/")} == OTHERS.keys()


def test_no_way_to_start_a_process_is_missed(tmp_path: Path) -> None:
    for text in (
        "import os\nos.fork()", "from os import fork\nfork()", "import subprocess as s\ns.run([])",
        "from subprocess import check_output as c\nc([])", "import multiprocessing.pool\nmultiprocessing.Process()",
        "import asyncio\nasyncio.create_subprocess_exec('a')",
    ):  # fmt: skip
        (tmp_path / "a.py").write_text(text)
        assert _starts(tmp_path / "a.py"), text
    (tmp_path / "a.py").write_text("import platform, subprocess\nx: subprocess.Popen\nplatform.python_version()")
    assert not _starts(tmp_path / "a.py")


def _sources() -> Iterator[Path]:
    package = ROOT / "src" / "photon"
    yield from package.glob("*.py")
    for room in package.iterdir():  # most are links
        yield from room.rglob("*.py")


def _starts(path: Path) -> bool:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    known = set(STARTS)  # and what the file calls them
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            whole = str(node.module).partition(".")[0] in MODULES
            known |= {each.asname or each.name for each in node.names if whole or each.name in STARTS}
    modules = {
        each.asname or each.name.partition(".")[0]
        for node in nodes if isinstance(node, ast.Import)
        for each in node.names if each.name.partition(".")[0] in MODULES
    }  # fmt: skip
    called = [ast.unparse(node.func).split(".") for node in nodes if isinstance(node, ast.Call)]
    return any(words[-1] in known or words[0] in modules for words in called)
