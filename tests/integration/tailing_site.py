"""A whole pipeline of real processes whose dispatcher is killed -9 at drawn moments of its logs' history."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from photon.lab.demo.check import records
from tests.deployments import deployment, join
from tests.integration.commands import Result, photon
from tests.integration.forked import Process, begin

HEADER = b"click_id,query_id,time_us,note_" + b"x" * 3000 + b"\n"  # longer than the compared part of a first record
T_US = 1_760_000_000_000_000
QUERIES = 20_000
RECORD_BYTES = 1 << 20
# Much more than it takes: all processes start within the first wait, on a machine that may be busy.
DEADLINE_S = 120.0


class Site:
    """One pipeline. Each test has its own directory among its logs, and moments (``beat``) at which the dispatcher
    may be killed; it comes back some moments later."""

    def __init__(self, base: Path) -> None:
        self.base, self.logs, self.output = base, base / "clicks", base / "output"
        columns = {"key": "query_id", "event_id": "click_id", "time": "time_us", "unit": "us", "foreign": "csv"}
        joined = join('foreign_files = ["**/*.log*"]', **columns)
        self.config = deployment(base, joined, "eventstore", "dispatcher", "joiners.east-1")
        (base / "queries" / "q.log").write_text("".join(f'{{"query_id":"q{n}"}}\n' for n in range(QUERIES)))
        self.expected: Counter[str] = Counter()
        self.optional: Counter[str] = Counter()  # clicks that may be joined, at most once
        self.directory = self.logs
        self.processes: dict[str, Process] = {}
        self.settings: list[str] = []  # overrides for the dispatcher's start
        self._ids, self._first = 0, 1
        self.stored_at_start = 0
        self._seen: set[str] = set()
        self._rolled: set[str] = set()
        self._read_to: Counter[str] = Counter()
        self._rng = random.Random()
        self._kill_at = self._back_at = self._beats = 0

    # -- processes -------------------------------------------------------------------------------------------------
    def start(self, noun: str, *more: str) -> None:
        where = ("r1",) if noun == "registry" else ("--datacentre", "east")
        with open(self.base / f"{noun}.err", "ab") as err:
            command = ("serve", noun, "--config", self.config, *where, *more, "--stop-with-parent")
            self.processes[noun] = begin(*command, stdin=subprocess.PIPE, stdout=err, stderr=err)

    def kill(self, noun: str) -> None:
        """kill -9."""
        process = self.processes.pop(noun)
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def dispatch(self, *more: str) -> None:
        """The dispatcher runs."""
        if "dispatcher" not in self.processes:
            self.start("dispatcher", *(word for each in self.settings for word in ("--set", each)), *more)

    def said(self, noun: str) -> str:
        """A process's log output."""
        return (self.base / f"{noun}.err").read_text()

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        try:
            for noun in ("registry", "eventstore", "joiner"):
                self.start(noun)
            yield self
        finally:
            for noun in list(self.processes):
                self.kill(noun)

    # -- a test's story --------------------------------------------------------------------------------------------
    def begin(self, name: str, seed: int) -> None:
        """One of the first three beats kills; up to two beats later the dispatcher is back."""
        print(f"seed {seed}")
        self._rng = random.Random(f"{name} {seed}")
        self._kill_at, self._beats = self._rng.randrange(3), 0
        self._back_at = self._kill_at + self._rng.randrange(3)
        self.directory = self.logs / f"{name}-{seed}"
        self.directory.mkdir()
        self.settings = []
        self.stored_at_start = sum(path.stat().st_size for path in (self.base / "state").glob("dispatcher.db*"))
        self.expected.clear()
        self.optional.clear()
        self._first = self._ids + 1
        if "joiner" not in self.processes:  # a previous test failed
            self.start("joiner")
        self.dispatch()

    def beat(self) -> None:
        """A moment at which the dispatcher may be killed."""
        if self._beats == self._kill_at and "dispatcher" in self.processes:
            time.sleep(self._rng.choice((0.0, 0.01, 0.1, 0.5)))  # lets it proceed, more or less far
            self.kill("dispatcher")
        if self._beats >= self._back_at:
            self.dispatch()
        self._beats += 1

    def clicks(self, count: int, note: bytes = b"n", *, expected: bool = True) -> bytes:
        """Lines of new clicks, all of which have their queries."""
        lines = []
        for _ in range(count):
            n = self._ids = self._ids + 1
            lines.append(b"c%d,q%d,%d,%s\n" % (n, n % QUERIES, T_US + n * 1000, note))
            if expected:
                self.expected[f"c{n}"] += 1
        return b"".join(lines)

    def append(self, name: str, data: bytes, *, header: bool = True) -> Path:
        """To a log below the test's directory, which begins with the header."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as log:
            if header and log.tell() == 0:
                data = HEADER + data
            log.write(data)
        return path

    def joined(self) -> Counter[str]:
        """This test's clicks in the output."""
        ids = (record["event_id"] for record in records(self.output / "joined"))
        return Counter(each for each in ids if int(each[1:]) >= self._first)

    def _new_ids(self) -> set[str]:
        """Ids in the output so far. Only new lines are read; a killed joiner may have written lines twice."""
        rolled = {path.name for path in (self.output / "joined").glob("*.gz")}
        if not rolled <= self._rolled:
            self._seen.update(record["event_id"] for record in records(self.output / "joined"))
            self._rolled = rolled
        for path in sorted((self.output / "joined").glob("*.jsonl")):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # else compressed meanwhile
                file.seek(self._read_to[path.name])
                data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                self._seen.update(orjson.loads(line)["event_id"] for line in whole.splitlines())
                self._read_to[path.name] += len(whole)
        return self._seen

    def dead_letters(self, count: int) -> list[tuple[str, int]]:
        """File and offset of each rejected record of this test's logs, once there are ``count``."""

        def found() -> list[tuple[str, int]]:
            directory = self.output / "rejected"
            rejected = [record["source"] for record in records(directory)] if directory.exists() else []
            name = self.directory.name + "/"
            return sorted((each["file"], each["offset"]) for each in rejected if each["file"].startswith(name))

        self.until(lambda: len(found()) >= count, f"{count} dead letters are written")
        return found()

    def settle(self) -> None:
        """All clicks written so far are joined, each once, and nothing else is."""
        self.dispatch()
        self.until(lambda: self.expected.keys() <= self._new_ids(), "every click is joined")
        assert self.joined() - self.optional == self.expected

    def finish(self) -> None:
        """Like ``settle``; and the dispatcher was killed."""
        while self._beats <= max(self._kill_at, self._back_at):
            self.beat()
        self.settle()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            for noun, process in self.processes.items():
                assert process.poll() is None, f"{noun} ended: {self.said(noun)[-2000:]}"
            assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
            time.sleep(0.05)

    def ledger(self) -> dict[str, int]:
        """Its sums; all 0 while there is no state."""
        told = photon("status", "ledger", "--config", self.config, "-o", "json").out
        return Counter(json.loads(told)["total"] if told else {})

    def move_state_away(self) -> None:
        """Moves the dispatcher's state and its copies away; its exported lines are known to nobody then."""
        for path in (self.base / "state").glob("dispatcher.db*"):
            path.unlink()

    def lag(self) -> Result:
        return photon("status", "lag", "--config", self.config, "-o", "json")
