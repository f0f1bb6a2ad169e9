"""Small mutants of the pure cores, and which of them no test notices: ``make mutants N=200``.

Mutant n is drawn by Random(n): an operator or a condition is turned round, a number is one more, a line is dropped.
Each is tried in a copy of the project: by the unit tests that import its module, then by those of its room, at last
by a few seeds of the simulations. Survivors are printed with their difference: each lacks a test, or changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import importlib.util
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Room -> its modules without files, sockets, clocks and randomness of their own, wherever in the room they lie.
CORES = {
    "dispatcher": (
        "core", "events", "flow", "homes", "ledger", "lookups", "open_events", "queues", "retry",
        "waiting",
    ),
    "eventstore": ("columns", "found_records", "index", "sparse"),
    "idregistry": (
        "batching", "commands", "config_machine", "id_bucket", "rules",
        "sharding", "state_machine", "witness",
    ),
    "joiner": ("core", "foreign_columns", "rows", "verdicts", "wire"),
    "src/photon/tables": ("cell", "collecting", "observing", "oracle", "resolving", "system", "transaction"),
    "src/photon/batch": ("columns", "events", "ids", "records", "verdicts"),
    "src/photon/outputs": ("cursor", "next_read", "published", "ranges"),
}  # fmt: skip
SIMULATIONS = {
    "dispatcher": ("dispatcher", "workers", "datacentres"),
    "eventstore": ("datacentres",),
    "idregistry": ("registry", "resharding", "test_raft.py"),
    "joiner": ("joiner", "copies", "datacentres"),
    "src/photon/tables": ("tables",),
    "src/photon/batch": ("joiner", "registry"),
}
SEEDS = 5
FIRST = 3  # test files that are tried before the others that import a mutant's module
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--timeout=120", "-W", "ignore::pytest.PytestAssertRewriteWarning")
STAGE_CPU_S = 300  # a mutant that takes longer goes round in circles, which is noticed
IMPORTED = ("grpc.aio", "hypothesis", "msgspec", "numpy", "orjson", "structlog", "xxhash", "zstandard")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "build", "dist", "site", "__pycache__")
TOLD = {"log", "logger", "metrics"}  # what is only told to people: a dropped line of these is no mutant

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    number: int
    room: str
    path: Path  # from the project's root
    before: str
    after: str

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[1:] if parts[0] == "src" else ("photon", *parts))

    def diff(self) -> str:
        lines = (text.splitlines() for text in (self.before, self.after))
        return "\n".join(list(difflib.unified_diff(*lines, str(self.path), str(self.path), n=2, lineterm=""))[2:])


# -- making them -----------------------------------------------------------------------------------------------------
def cores() -> list[tuple[str, Path]]:
    """(room, path) of all cores."""
    found = []
    for room, names in CORES.items():
        for name in names:
            paths = sorted(path.relative_to(ROOT) for path in (ROOT / room).rglob(f"{name}.py"))
            if not paths:
                sys.exit(f"tests/mutants.py: CORES names {room}/**/{name}.py, which is not there")
            found += [(room, path) for path in paths]
    return found


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of something in functions; each has the place of what it stands for."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in _inside(statement):
                    yield from changed(node)


def _inside(statement: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, texts, ``strict=`` of zip, and functions within, which are walked by themselves."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr | ast.Raise | ast.Assert):
        return
    if isinstance(statement, ast.keyword) and statement.arg == "strict":
        return
    yield statement
    for name, value in ast.iter_fields(statement):
        if name != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _inside(child)


def changed(node: ast.AST) -> Iterator[ast.AST]:
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and len(other.ops) == 1 and type(other.ops[0]) in COMPARED:
        other.ops = [COMPARED[type(other.ops[0])]()]
    elif isinstance(other, ast.BinOp | ast.AugAssign) and type(other.op) in CALCULATED:
        other.op = CALCULATED[type(other.op)]()
    elif isinstance(other, ast.BoolOp):
        other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
    elif isinstance(other, ast.Constant) and type(other.value) is bool:
        other.value = not other.value
    elif isinstance(other, ast.Constant) and type(other.value) is int:
        other.value += 1
    elif isinstance(other, ast.If | ast.IfExp | ast.While):
        other = ast.copy_location(ast.UnaryOp(ast.Not(), other.test), node.test)  # type: ignore[attr-defined]
    elif isinstance(other, ast.Expr) and isinstance(other.value, ast.Call) and not _is_told(other.value):
        other = ast.copy_location(ast.Pass(), node)
    else:
        return
    yield other


def _is_told(call: ast.Call) -> bool:
    return bool(TOLD & set(re.findall(r"\w+", ast.unparse(call.func).removeprefix("self._"))))


def drawn(number: int) -> Mutant:
    draw = random.Random(number)
    while True:
        room, path = draw.choice(_weighted())
        source = (ROOT / path).read_text()
        other = draw.choice(list(places(ast.parse(source))))
        after = _replaced(source, other, ast.unparse(other))
        if after != source:
            return Mutant(number, room, path, source, after)


@cache
def _weighted() -> list[tuple[str, Path]]:
    """Each core as often as it can be changed."""
    return [core for core in cores() for _ in places(ast.parse((ROOT / core[1]).read_text()))]


def _replaced(source: str, at: ast.AST, by: str) -> str:
    """``at``: a node that has the place of the one that goes."""
    lines = source.encode().splitlines(keepends=True)
    begin, end = at.lineno - 1, at.end_lineno - 1  # type: ignore[attr-defined]
    head, tail = lines[begin][: at.col_offset], lines[end][at.end_col_offset :]  # type: ignore[attr-defined]
    text = f"({by})" if isinstance(at, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp) else by
    return b"".join([*lines[:begin], head, text.encode(), tail, *lines[end + 1 :]]).decode()


# -- trying them -----------------------------------------------------------------------------------------------------
def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


@cache
def reached(path: Path) -> frozenset[str]:
    """Modules that a test imports, itself or by helpers of tests."""
    found, left, seen = set[str](), [path], set[Path]()
    while left:
        names = imported(left.pop())
        found |= names
        for name in names:
            helper = ROOT / (name.replace(".", "/") + ".py")
            if name.startswith("tests.") and helper.exists() and helper not in seen:
                seen.add(helper)
                left.append(helper)
    return frozenset(found)


def stages(mutant: Mutant) -> Iterator[list[str]]:
    """What pytest is given, one after the other until something is noticed."""
    unit = ROOT / "tests/unit"
    near = [path for path in sorted(unit.rglob("test_*.py")) if mutant.module in reached(path)]
    near.sort(key=lambda path: (mutant.path.stem not in path.stem, len(reached(path))))  # the most likely first
    for some in (near[:FIRST], near[FIRST:]):
        if some:
            yield [str(path.relative_to(ROOT)) for path in some]
    room = unit / Path(mutant.room).name
    rest = [str(path.relative_to(ROOT)) for path in sorted(room.rglob("test_*.py")) if path not in near]
    if rest:
        yield rest
    for name in SIMULATIONS.get(mutant.room, ()):
        yield [f"tests/simulation/{name}", "-m", "seeded"]


def noticed_by(mutant: Mutant, place: Path) -> str:
    """Which tests fail; empty: none does."""
    _put(place / mutant.path, mutant.after)
    try:
        for arguments in stages(mutant):
            code, said = tested(place, arguments)
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
                return failed[0] if failed else f"exit code {code}"
        return ""
    finally:
        _put(place / mutant.path, mutant.before)


def _put(file: Path, text: str) -> None:
    """Without what it was compiled to: of the same size within the same second it would stand for what is new."""
    file.write_text(text)
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def tested(place: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of pytest there, in a copy of this process, which has imported what others have made."""
    output = place / "output.txt"
    pid = os.fork()
    if pid == 0:
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.dont_write_bytecode = False
        os.chdir(place)
        os.environ |= {"PYTHONPATH": f"{place / 'src'}:{place}", "PHOTON_SIM_SEEDS": str(SEEDS)}
        os.environ.pop("PHOTON_SIM_BASE", None)
        sys.path[:] = [str(place / "src"), str(place), *(each for each in sys.path if each not in ("", str(ROOT)))]
        for name in [each for each in sys.modules if each.split(".")[0] == "tests"]:
            del sys.modules[name]
        resource.setrlimit(resource.RLIMIT_CPU, (STAGE_CPU_S, STAGE_CPU_S))
        code = 1
        try:
            code = int(pytest.main([*PYTEST, *arguments]))
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), output.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="only print them")
    options = parser.parse_args()
    mutants = [drawn(number) for number in range(options.first, options.first + options.count)]
    if options.show:
        print("\n\n".join(f"mutant {each.number}: {each.path}\n{each.diff()}" for each in mutants))
        return
    survivors = list(survivors_of(mutants, options.workers))
    print(f"{options.count - len(survivors)} of {options.count} noticed ({1 - len(survivors) / options.count:.1%})")
    for each in survivors:
        print(f"\nmutant {each.number} survives: {each.path}\n{each.diff()}")


def survivors_of(mutants: Sequence[Mutant], workers: int) -> Iterator[Mutant]:
    for name in IMPORTED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as directory:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, context, _begin, [Path(directory)]) as pool:
            for mutant, by in zip(mutants, pool.map(_tried, mutants), strict=True):
                print(f"mutant {mutant.number}: {mutant.path}: {by or 'SURVIVES'}", flush=True)
                if not by:
                    yield mutant


def _begin(directory: Path) -> None:
    """Of a process that tries mutants: a copy of the project, where it stays."""
    os.chdir(shutil.copytree(ROOT, directory / str(os.getpid()), symlinks=True, ignore=LEFT_OUT))


def _tried(mutant: Mutant) -> str:
    return noticed_by(mutant, Path.cwd())


if __name__ == "__main__":
    main()
