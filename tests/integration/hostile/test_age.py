"""State and output that are not of one age: refused before anything is changed, or exactly once."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import Result, photon, until
from tests.integration.join_logs import Logs

STATE = ".photon"
SLOT = f"{STATE}/slots/local-1"
REGISTRY = (f"{STATE}/registry", f"{STATE}/key")
DISPATCHER = (f"{STATE}/dispatcher.db",)
OUTPUT = ("joined", "filtered", "unmatched", "rejected", "late")
PARTS = {"output": OUTPUT, "slot": (SLOT,), "registry": REGISTRY, "dispatcher": DISPATCHER, "state": (STATE,)}
MAX = ("--max-rejected", "1000")


def contents(directory: Path) -> dict[str, bytes]:
    """All files but locks."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def records(output: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(output).items() if name.partition("/")[0] in OUTPUT}


def remove(output: Path, *names: str) -> None:
    for name in names:
        path = output / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def put_back(output: Path, copy: Path, *names: str) -> None:
    """As they were when the copy was made, and nothing besides."""
    remove(output, *names)
    for name in names:
        source = copy / name
        if source.is_dir():
            shutil.copytree(source, output / name)
        elif source.exists():
            shutil.copy2(source, output / name)


class Ages:
    """One output with an older copy of itself, made in the middle of a run, and the newest one."""

    def __init__(self, base: Path) -> None:
        self.logs = logs = Logs(base, clicks=60)
        self.older, self.newest = base / "older", base / "newest"
        logs.write(0.4)
        with logs.following(*MAX) as process:
            until(lambda: self.shown() > 0, 30, "records are shown")
            process.process.send_signal(signal.SIGSTOP)  # a copy of one moment
            shutil.copytree(logs.output, self.older, ignore=shutil.ignore_patterns("*.socket"))
            process.process.send_signal(signal.SIGCONT)
            shown = self.shown()
            logs.write(0.8)
            until(lambda: self.shown() > shown, 30, "more records are shown")
            process.interrupt()
        shutil.copytree(logs.output, self.newest)

    def shown(self) -> int:
        path = self.logs.output / SLOT / "durable.json"
        return sum(json.loads(path.read_bytes())["files"].values()) if path.exists() else 0

    def mix(self, *older: str, lost: tuple[str, ...] = ()) -> None:
        """The newest one, with these parts from the older copy, or gone."""
        remove(self.logs.output, STATE, *OUTPUT)
        put_back(self.logs.output, self.newest, STATE, *OUTPUT)
        for part in older:
            put_back(self.logs.output, self.older, *PARTS[part])
        for part in lost:
            remove(self.logs.output, *PARTS[part])

    def refused(self) -> Result:
        """One line, exit code 2, twice, and not a byte of the output is another."""
        before = records(self.logs.output)
        for _ in range(2):
            found = self.logs.once(*MAX)
            assert found.code == 2, (found.code, found.err)
            assert len(found.err.splitlines()) == 1, found.err
            assert "name another --output" in found.err
            assert records(self.logs.output) == before
        return found


@pytest.fixture(scope="module")
def ages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ages]:
    return Ages(tmp_path_factory.mktemp("ages"))


@pytest.mark.parametrize(
    ("older", "lost", "why"),
    [
        ((), ("state",), "of which there is no state: it was lost"),
        (("state",), (), "holds records that neither the state of slot local-1 nor its redo log knows"),
        (("output",), (), "this directory is an older copy of slot local-1"),
        (("registry",), (), "it was put back from an older copy than slot local-1"),
        (("slot",), (), "the dispatcher has counted events that this state of slot local-1 never had"),
        (("slot", "dispatcher"), (), "neither the state of slot local-1 nor its redo log knows"),
        (("slot", "registry"), (), "the dispatcher has counted events"),
        (("slot", "registry", "output"), (), "the dispatcher has counted events"),
        (("output", "slot"), (), "this directory is an older copy of slot local-1"),
        (("output", "registry"), (), "it was put back from an older copy than slot local-1"),
        ((), ("slot",), "of which there is no state: it was lost"),
        ((), ("registry",), "this registry never opened it"),
        ((), ("slot", "registry", "output"), "the dispatcher has counted events"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_of_two_ages(ages: Ages, older: tuple[str, ...], lost: tuple[str, ...], why: str) -> None:
    ages.mix(*older, lost=lost)
    assert why in ages.refused().err


@pytest.mark.parametrize("older", [(), ("dispatcher",), ("state", "output")], ids="+".join)
def test_of_ages_that_fit(ages: Ages, older: tuple[str, ...]) -> None:
    """The newest; a dispatcher that reads again; a backup of all of one moment."""
    ages.mix(*older)
    logs = ages.logs
    logs.write()
    found = logs.once(*MAX)
    assert found.code == 0, found.err
    logs.exact(found.json)


def test_what_the_refusal_says_works(ages: Ages) -> None:
    ages.mix(lost=("state",))
    ages.refused()
    logs = ages.logs
    logs.write()
    kept, logs.output = logs.output, logs.base / "another"
    logs.finish()  # another output
    logs.output = kept
    put_back(kept, ages.newest, STATE)
    logs.finish()  # the newest state
