"""A real process finds keys in parallel with the reader: the same keys, and nothing is lost whatever happens
to it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.logs.api import Block
from photon.adapters.side import SideConfig, TimeConfig
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.eventstore.block_keys import BlockKeys, block_keys
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.key_finding.process import DATA_BYTES
from photon.eventstore.key_finding.process_finder import AHEAD, HEADER_BYTES_MAX, ProcessKeyFinder, can_use_process
from tests.integration.commands import alive, until
from tests.unit.eventstore.helpers import LineAdapter, same_keys

ADAPTER = ConfiguredAdapter.from_sides(
    SideConfig(format="jsonl", key="id"),
    SideConfig(format="jsonl", key="id", time=TimeConfig(field="t", unit="s")),
)
BLOCKS = 60
GONE_S = 20.0


def blocks(count: int, seed: int = 1) -> list[Block]:
    """Records of all lengths, including bad ones and none at all."""
    draw = random.Random(seed)
    out = []
    for number in range(count):
        lines = [
            b'{"id":"%d-%d","text":"%s"}' % (number, i, b"x" * draw.randrange(300)) if draw.random() < 0.98 else b"{"
            for i in range(draw.choice((0, 1, 40, 3000)))
        ]
        data = b"".join(line + b"\n" for line in lines)
        out.append(Block("f00", LogFile("a.jsonl"), 0, data, len(data)))
    return out


def beside(report: Callable[[str], object]) -> ProcessKeyFinder:
    """With patience: a process may take long to start here."""
    return ProcessKeyFinder(ADAPTER, lambda: True, report, patience_s=60.0)


def through(finder: ProcessKeyFinder, given: list[Block], each: Callable[[int], None] = lambda number: None) -> None:
    """Every block comes back once, in order, with the keys found here; three are in flight at a time."""
    back: list[tuple[Block, BlockKeys]] = []
    for number in range(0, len(given), 3):
        each(number)
        for block in given[number : number + 3]:
            finder.give(block)
        back += finder.found(everything=False)
        assert number + 3 - len(back) <= AHEAD + 3
    back += finder.found(everything=True)
    finder.close()
    finder.close()
    assert [id(block) for block, _ in back] == [id(block) for block in given]
    for block, found in back:
        assert same_keys(found, block_keys(ADAPTER, block.data, block.file))


def ends(pid: int) -> None:
    """Waits for it."""
    until(lambda: not alive(pid), GONE_S, "the key process ends")


def test_the_same_keys_and_no_process_afterwards() -> None:
    said: list[str] = []
    finder = beside(said.append)
    pids = set()
    through(finder, blocks(BLOCKS), lambda number: pids.add(finder.pid))
    (pid,) = pids - {None}
    assert pid is not None
    ends(pid)
    assert finder.pid is None
    assert said == []


def test_where_it_is_not_worth_it_there_is_none() -> None:
    finder = ProcessKeyFinder(ADAPTER, lambda: False, pytest.fail)
    given = blocks(8)
    finder.give(given[0])
    assert finder.pid is None
    assert [block for block, _ in finder.found(everything=False)] == given[:1]
    through(finder, given[1:])
    assert can_use_process(ADAPTER)
    assert not can_use_process(LineAdapter({}))


def test_what_does_not_fit_is_found_here() -> None:
    large = b'{"id":"k"}\n' * (DATA_BYTES // 11 + 1)
    odd = [
        Block("f00", LogFile("a.jsonl"), 0, large, len(large)),
        Block("f00", LogFile("a.jsonl", b"h" * (HEADER_BYTES_MAX + 1)), 0, b'{"id":"k"}\n', 11),
    ]
    through(beside(pytest.fail), [*blocks(9), *odd, *blocks(9, seed=2)])


@pytest.mark.parametrize("at", [3, 30])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_dies_or_hangs_is_done_without(at: int, how: signal.Signals) -> None:
    said: list[str] = []
    finder = beside(said.append)
    pids = []

    def strike(number: int) -> None:
        if number == at:
            assert finder.pid is not None
            pids.append(finder.pid)
            os.kill(finder.pid, how)
            if how is signal.SIGSTOP:
                finder.patience_s = 0.5

    through(finder, blocks(BLOCKS), strike)
    ends(pids[0])
    assert len(said) == 1
    assert "the key process was abandoned: " in said[0]


def test_it_ends_with_the_process_that_began_it() -> None:
    code = (
        "import sys, time\n"
        "from tests.integration.eventstore.test_key_process import beside, blocks\n"
        "finder = beside(print)\n"
        "finder.give(blocks(1)[0])\n"
        "print(finder.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    ends(pid)


@pytest.mark.parametrize("cache_bytes", [1 << 20, 64 << 20])
def test_an_event_store_answers_alike(tmp_path: Path, cache_bytes: int) -> None:
    """Two maps of the same logs, one from keys found by a process; with a small cache little of it is fed."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(5):
        (logs / f"{number}.jsonl").write_bytes(
            b"".join(b'{"id":"%d-%d","n":"%s"}\n' % (number, i % 29_000, b"x" * 100) for i in range(30_000)) + b"{\n"
        )
    asked = [b"%d-%d" % (number, i) for number in range(6) for i in range(0, 30_000, 300)]

    async def answers(helped: bool) -> tuple[object, ...]:
        config = EventStoreConfig(
            "clicks", logs, tmp_path / f"map-{helped}", once=True, cache_bytes=cache_bytes,
            key_process_bytes=0 if helped else 1 << 40,
        )  # fmt: skip
        said: list[str] = []
        engine = EventStoreEngine(config, ADAPTER, SystemClock(), RealDisk(), said.append)
        engine.start()
        await asyncio.to_thread(engine.ended.wait)
        assert not engine.failure
        found = await engine.look_up(asked, [0] * len(asked))
        progress = await engine.progress()
        await engine.close()
        records = [None if each is None else (each.file.path, each.offset, each.record) for each in found.records]
        bad = [line for line in said if "not a primary record" not in line]
        return found.answers, records, progress.events, progress.duplicates, progress.bad_records, bad

    here, helped = asyncio.run(answers(helped=False)), asyncio.run(answers(helped=True))
    assert here == helped
    assert here[0].count(LookUpCode.FOUND) == 5 * 97  # type: ignore[attr-defined]
    assert here[2:] == (150_000, 5_000, 5, [])
