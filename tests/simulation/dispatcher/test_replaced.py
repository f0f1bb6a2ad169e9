"""Seeded histories of logs that are replaced by others with the same beginning, while dispatchers are killed
anywhere.

The whole dispatcher runs in virtual time, over real files and its real database; joiners and registry are modelled.
However files were shared, replaced and rolled, last lines torn and processes killed: at the end of a run every line
that has its end was counted once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block
from photon.adapters.logs.files import Files
from photon.adapters.logs.watching import Watch
from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME, read_ledger
from photon.dispatcher.engine import DispatcherEngine, Options, Policy, Surroundings
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.open_logs import OpenLog, OpenLogs
from photon.dispatcher.process import Places, open_dispatcher
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import State
from photon.eventstore.api import Progress
from photon.idregistry.api import I64, Answer, split_digests
from photon.joiner.api import JoinAnswers
from tests.simulation.world.loop import Owner, VirtualLoop, bury
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each
from tests.simulation.world.violation import Violation, of_seed
from tests.unit.dispatcher.test_engine import FakeLookUps
from tests.unit.dispatcher.world import DIGESTER, HERE, FakeRegistry, Words, looked_up

ROUNDS = 8
NOW_NS = 10**18
OPTIONS = Options(once=True, commit_s=0.01, scan_s=0.002, progress_s=0.002, stop_s=2.0, join_timeout_s=5.0)
LAST_S = 600.0  # a run that takes longer never ends
REST_S = 2 * LAST_S  # a file that was written less than this ago is not at rest: its torn line waits
SEEDS_OF_AN_ABLATION = 200


class LookedUp(FakeLookUps):
    """Answers from joiners' registrations, after a while or never."""

    def __init__(self, history: History) -> None:  # of another world than its base's
        self.history = history

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        history = self.history
        await asyncio.sleep(history.random.uniform(0.0, 0.02))
        if history.random.random() < history.registry.trouble * 0.3:
            raise ConnectionError("down")
        owners = {DIGESTER.digests([event]): owner for event, owner in history.registry.owners.items()}
        found = [owners.get(digest) for digest in split_digests(digests)]
        return looked_up(
            [Answer.ABSENT if owner is None else Answer.PRESENT for owner in found],
            [0 if owner is None else owner[1] for owner in found],
            [0 if owner is None else owner[2] for owner in found],
            names=(HERE,),
        )


class SlowJoiner:
    """Registers, and answers later."""

    def __init__(self, history: History) -> None:
        self.history = history

    async def join(self, batch: Events, *, timeout: float) -> JoinAnswers:
        answers = self.history.registry.answers(batch.rows())
        await asyncio.sleep(self.history.random.uniform(0.0, 0.05))
        return answers

    async def close(self) -> None: ...


class Clock:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    def now_ns(self) -> int:
        return NOW_NS + int(self.loop.now * 1e9)

    def monotonic(self) -> float:
        return self.loop.now


class History:
    """``files``: the contents of the logs."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random, self.directory = Random(seed), directory
        self.logs = directory / "foreign"
        self.logs.mkdir()
        self.registry = FakeRegistry(seed)
        self.files: dict[str, list[bytes]] = {"c.log": [b"first k 0\n"]}
        self.counted: set[tuple[int, bytes]] = set()
        self.story: list[str] = []
        self.lines = self.rolled = self.written = 0
        self.torn = 0  # bytes that the last line of ``c.log`` still lacks
        self.all_counted = False  # nothing is lost with a file that disappears

    def run(self) -> None:
        self._write("c.log", [*self.files["c.log"], *self._new()], anew=True)
        self._life(killed=False)
        for _ in range(ROUNDS):
            for _ in range(self.random.choice((0, 1, 1, 2))):
                self._change()
            self._life(killed=self.random.random() < 0.5)
        self._life(killed=False)

    # -- logs ------------------------------------------------------------------------------------------------------
    def _new(self) -> list[bytes]:
        first, self.lines = self.lines, self.lines + self.random.randint(1, 12)
        return [b"%d k%d 0\n" % (n, n) for n in range(first, self.lines)]

    def _write(self, name: str, lines: list[bytes], *, anew: bool, torn: int = 0) -> None:
        """``anew``: it may be a new file. ``torn``: bytes of the last line that are not written yet."""
        self.files[name], self.torn = lines, torn
        path = self.logs / name
        if anew and self.random.random() < 0.5:
            path.unlink(missing_ok=True)
        data = b"".join(lines)
        path.write_bytes(data[: len(data) - torn])
        self.written += 1
        age = self.written + NOW_NS // 10**9 * (torn > 0)
        os.utime(path, (age, age))  # their age is part of the schedule

    def _change(self) -> None:
        random = self.random
        if self.torn:
            self._write("c.log", self.files["c.log"], anew=False)
        what = random.choice(("grow", "replace", "roll", "roll"))
        if what == "grow":
            lines = [*self.files["c.log"], *self._new()]
            torn = random.choice((0, random.randrange(1, len(lines[-1]))))
            self._write("c.log", lines, anew=False, torn=torn)
            self.story.append(f"grow, {torn} bytes torn off")
            return
        other = random.choice(list(self.files.values()))
        shared = random.randint(1, len(other) - 1)
        name = "c.log"
        if what == "replace" and self.all_counted:
            name = random.choice(list(self.files))
        else:
            what = "roll"
            self.rolled += 1
            self.files[f"c.log.{self.rolled}"] = self.files.pop(name)
            (self.logs / name).rename(self.logs / f"c.log.{self.rolled}")
        self._write(name, [*other[:shared], *self._new()], anew=True)
        self.story.append(f"{what} {name}: {shared} lines of {len(other)}, then {len(self.files[name]) - shared}")

    # -- runs ------------------------------------------------------------------------------------------------------
    def _life(self, *, killed: bool) -> None:
        """One process, to its end or killed."""
        self.registry.trouble = self.random.choice((0.0, 0.3)) if killed else 0.0
        failed: list[BaseException] = []

        def fail(error: BaseException) -> None:
            failed.append(error)
            loop.stop()

        loop, owner = VirtualLoop(self.random, fail), Owner()
        after = self.random.uniform(0.0, 0.2) if killed else LAST_S
        limits = Limits(batch_events=self.random.choice((2, 1000)), parse_records=self.random.choice((1, 1000)))
        with open_dispatcher(
            Places(
                self.logs,
                self.directory / "out",
                self.directory / "state",
                watch=Watch.POLL,
                last_line_after_s=REST_S,
            ),
            Policy(Patience(once=True), limits, OPTIONS),
            Surroundings(
                join="clicks",
                datacentre=HERE,
                adapter=Words({}),
                digester=DIGESTER,
                joiners=[SlowJoiner(self)],
                progress=self._progress,
                registry=LookedUp(self),
                envelope=Envelope(),
                clock=Clock(loop),
                random=self.random.random,
            ),
            RealDisk(),
            report=lambda problem: None,
        ) as engine:
            task = loop.spawn(owner, engine.run())
            task.add_done_callback(lambda _: loop.stop())
            loop.later(after, loop.stop)
            loop.run_forever()
            ended = task.done() and not failed
            bury(loop, [owner])
        loop.close()
        self.story.append(f"killed after {after:.3f} s" if not ended else "run")
        if not ended and not killed:
            raise Violation(f"it does not end: {failed}")
        self.all_counted = ended and not killed
        if self.all_counted:
            self._check()

    async def _progress(self) -> Progress:
        return Progress(read_past_ns=2**62)

    def _check(self) -> None:
        for name, lines in self.files.items():
            at = 0
            for line in lines[:-1] if self.torn and name == "c.log" else lines:
                self.counted.add((at, line))
                at += len(line)
        ledger = read_ledger(self.directory / "state" / STATE_NAME)
        total = ledger.total
        if ledger.unbalanced or total.read != len(self.counted) or total.pending:
            raise Violation(f"counted: {total.as_dict()} of {len(self.counted)} lines")
        if total.verdicts.get(Verdict.DUPLICATE):
            raise Violation(f"counted as duplicates: {total.as_dict()}")


def run_seed(seed: int) -> list[str]:
    with TemporaryDirectory() as directory:
        history = History(Path(directory), seed)
        with of_seed(seed, history.story):
            history.run()
        return history.story


@pytest.mark.seeded
def test_lines_of_logs_that_begin_alike_are_counted_once() -> None:
    run_each(run_seed, run_seed, 20)


def sent_at_once(self: DispatcherEngine, now: float, *, store_all: bool = False, at_once: bool = False) -> None:
    if not at_once:
        COMMIT(self, now, store_all=store_all)


def of_itself(self: OpenLogs, block: Block) -> OpenLog:
    log = self._logs.get(block.identity)
    if log is not None:
        return log
    ends = [self._logs[each].end for each in self._alike(block.identity)]
    return OpenLog(end=max(ends, default=0), rewritten=bool(ends))


COMMIT = DispatcherEngine._commit
ABLATIONS: dict[str, tuple[type, str, Callable[..., object]]] = {
    "what diverges is sent before it is a row": (DispatcherEngine, "_commit", sent_at_once),
    "a log waits for none that begins alike": (OpenLogs, "clear", lambda self, stretches: True),
    "a known log has nothing of one that begins alike": (OpenLogs, "_log", of_itself),
    "what was read of the log before it counts for its length": (State, "_diverge", lambda self, identities: None),
    "a torn line is taken for whole": (Files, "last_line_counts", lambda self, file, begin: True),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_simulator_notices(name: str) -> None:
    owner, method, instead = ABLATIONS[name]
    with patch.object(owner, method, instead):
        notice(f"replaced: {name}", range(SEEDS_OF_AN_ABLATION), run_seed, "counted")
