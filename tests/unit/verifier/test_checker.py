"""A slot's published lines against the raw logs, slice by slice, with crashes at any write."""

from __future__ import annotations

import asyncio
import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.config.disk import Disk, RealDisk
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from photon.outputs.published import read_slot
from photon.verifier import checker as checker_module
from photon.verifier.alarms import AlarmKind, AlarmLog, open_alarms
from photon.verifier.checker import Checker, LineFinding
from photon.verifier.service import RETRY_S, CheckLoop, ServiceLimits
from photon.verifier.source_finder import SourceFinder
from photon.verifier.status import checked_bytes
from photon.verifier.verifier import OutputShort, VerifierDamaged
from tests.dying_disk import DyingDisk, Killed
from tests.kit.clock import ManualClock
from tests.unit.verifier.logs import ADAPTER, AT_NS, Logs

S = 10**9
JOINED = "joined/s0-000001.jsonl"


class Setup:
    def __init__(self, path: Path, count: int = 40) -> None:
        self.path = path
        self.logs = Logs(path, count)
        self.state, self.output = path / "slots/s0", path / "output"
        (self.state / "verifier").mkdir(parents=True)
        (self.output / "joined").mkdir(parents=True)
        (self.output / "unmatched").mkdir(parents=True)
        (path / "own").mkdir()

    def publish(self, **files: bytes) -> None:
        """Publishes, by kind, the content of its first file."""
        names = {}
        for kind, data in files.items():
            name = f"{kind}/s0-000001.jsonl"
            (self.output / name).write_bytes(data)
            names[name] = len(data)
        self.durable(names)

    def durable(self, names: dict[str, int]) -> None:
        said = {"version": 1, "slot": "s0", "files": names, "rolled": []}
        (self.state / "durable.json").write_bytes(msgspec.json.encode(said))

    def checker(self, disk: Disk | None = None) -> Checker:
        disk = disk or RealDisk()
        sources = SourceFinder(disk, self.path / "own", ADAPTER, *self.logs.sides(), patience_ns=3600 * S)
        return Checker(disk, self.state, self.output, sources)

    def all(self, checker: Checker, now_ns: int = AT_NS - S) -> list[LineFinding]:
        """Watched since before the lines were made."""
        checker._sources.look(now_ns)
        found = []
        while (done := checker.step(now_ns)) is not None:
            found += done.found
            checker.commit(done)
        checker.save()
        return found


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_right_lines_are_checked_and_nothing_is_found(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "SLICE_BYTES", 700)
    joined, unmatched = b"".join(setup.logs.joined(*range(30))), b"".join(setup.logs.undone(*range(30, 40)))
    setup.publish(joined=joined, unmatched=unmatched)
    checker = setup.checker()
    assert setup.all(checker) == []
    assert (checker.checked.lines, checker.checked.unverifiable, checker.behind_bytes) == (40, 0, 0)
    checker.close()
    again = setup.checker()
    assert again.step(AT_NS) is None
    more = b"".join(setup.logs.joined(5))
    setup.publish(joined=joined + more, unmatched=unmatched)
    assert setup.all(again) == []
    assert again.checked.lines == 41


def test_each_wrong_line_is_found_with_its_place(setup: Setup) -> None:
    lines = setup.logs.joined(*range(10))
    lines[2] = lines[2].replace(b'"b2"', b'"bX"')
    lines[4] = lines[4].replace(b'"id":"c4"', b'"id":"c5"', 1)
    lines[6] = b"{" + lines[6][3:]
    lines[8] = lines[8].replace(b'"file":"clicks.log","offset":', b'"file":"clicks.log","offset":1')
    setup.publish(joined=b"".join(lines))
    found = setup.all(setup.checker())
    at = [len(b"".join(lines[:n])) for n in (2, 4, 6, 8)]
    kinds = [AlarmKind.DIFFERS, AlarmKind.DIFFERS, AlarmKind.TORN, AlarmKind.NO_SOURCE]
    assert sorted((each.offset, each.finding) for each in found) == list(zip(at, kinds, strict=True))
    assert "primary.words" in next(each.what for each in found if each.offset == at[0])
    assert "clicks.log:1" in next(each.what for each in found if each.offset == at[3])


def test_a_final_file_is_read_on_where_the_plain_one_was_left(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "SLICE_BYTES", 1000)
    lines = setup.logs.joined(*range(40))
    lines[35] = lines[35].replace(b'"b35"', b'"bXX"')
    data = b"".join(lines)
    setup.publish(joined=data)
    checker = setup.checker()
    checker._sources.look(AT_NS - S)
    first = checker.step(AT_NS)
    assert first is not None
    checker.commit(first)
    checker.close()
    plain = setup.output / JOINED
    plain.with_name("s0-000001.jsonl.gz").write_bytes(gzip.compress(data))
    plain.unlink()
    setup.durable({})
    entry = {"version": 1, "file": "joined/s0-000001.jsonl.gz", "uncompressed_bytes": len(data)}
    (setup.state / "manifest.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n")
    assert [each.finding for each in setup.all(checker)] == [AlarmKind.DIFFERS]
    assert checker.checked.lines == 40
    (plain.with_name("s0-000001.jsonl.gz")).unlink()
    (setup.state / "verifier/checked.json").unlink()
    gone = setup.checker()
    assert setup.all(gone) == []
    assert (gone.checked.unverifiable, gone.checked.gone) == (1, [JOINED])


def test_lines_whose_log_is_gone_are_counted_and_no_alarm(setup: Setup) -> None:
    setup.publish(joined=b"".join(setup.logs.joined(*range(10))))
    checker = setup.checker()
    checker._sources.look(AT_NS - S)
    (setup.logs.primary / "queries.log").unlink()
    assert setup.all(checker) == []
    assert (checker.checked.unverifiable, checker.checked.lines) == (10, 0)
    assert checker.checked.gone == ["queries.log"]


def test_bytes_that_are_missing_below_the_published_length(setup: Setup) -> None:
    data = b"".join(setup.logs.joined(1))
    setup.publish(joined=data)
    (setup.output / JOINED).write_bytes(b"")
    with pytest.raises(OutputShort, match="were published"):
        setup.checker().step(AT_NS)


@pytest.mark.parametrize("case", ["cut short", "its slot goes"])
async def test_an_output_file_that_is_not_read_on_is_closed(setup: Setup, case: str) -> None:
    setup.publish(joined=b"".join(setup.logs.joined(*range(10))))
    slots = {"s0": (setup.state, AlarmLog(RealDisk(), setup.state / "verifier", "s0"))}
    clock, sources = ManualClock(), setup.checker()._sources
    loop = CheckLoop(RealDisk(), clock, setup.output, sources, lambda: slots, ServiceLimits(check_share=1.0))
    if case == "cut short":
        (setup.output / JOINED).write_bytes(b"")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            await loop._round(pool, asyncio.Event())
            clock.passes(RETRY_S)
        if case == "its slot goes":
            slots.clear()
        await loop._round(pool, asyncio.Event())
    sources.close()
    assert str(setup.output / JOINED) not in map(os.path.realpath, glob("/proc/self/fd/*"))


def test_a_damaged_position_says_what_to_do(setup: Setup) -> None:
    (setup.state / "verifier/checked.json").write_bytes(b"{")
    with pytest.raises(VerifierDamaged, match="remove it"):
        setup.checker()


def test_killed_at_any_write_everything_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker_module, "SLICE_BYTES", 900)
    setup = Setup(tmp_path, 12)
    lines = setup.logs.joined(*range(12))
    for n in (0, 5, 11):
        lines[n] = lines[n].replace(b'"b%d"' % n, b'"b%s"' % (b"X" * len(str(n))))
    setup.publish(joined=b"".join(lines))
    expected = [len(b"".join(lines[:n])) for n in (0, 5, 11)]
    for crash in range(200):
        for path in (setup.state / "verifier").iterdir():
            path.unlink()
        disk = DyingDisk(crash)
        crashed = False
        for attempt in (disk, RealDisk()):
            try:
                _run(setup, attempt)
            except Killed:
                crashed = True
        stand = open_alarms(RealDisk(), setup.state / "verifier")
        assert [each.offset for each in stand] == expected, crash
        told = (setup.state / "verifier/alarms.jsonl").read_bytes().count(b'"finding"')
        assert told == len(expected), crash
        if not crashed:
            return
    raise AssertionError("there are more writes than this test reckons with")


def _run(setup: Setup, disk: Any) -> None:
    alarms = AlarmLog(disk, setup.state / "verifier", "s0")
    checker = setup.checker(disk)
    checker._sources.look(AT_NS - S)
    while (done := checker.step(AT_NS)) is not None:
        for each in done.found:
            alarms.tell(each.finding, each.what, AT_NS, file=done.file.name, offset=each.offset)
        checker.commit(done)
        checker.save()
    checker.close()


def test_alarms_are_carried_over_though_it_is_killed_at_any_write(tmp_path: Path) -> None:
    for crash in range(200):
        directory = tmp_path / str(crash)
        directory.mkdir()
        disk = DyingDisk(crash)
        crashed = False
        for attempt in (disk, RealDisk()):
            try:
                alarms = AlarmLog(attempt, directory, "s0", bytes_max=2500)
                for n in range(12):
                    alarms.tell(AlarmKind.TORN, "x" * 250, n, file="f", offset=n)
            except Killed:
                crashed = True
        stand = open_alarms(RealDisk(), directory)
        assert [each.offset for each in stand] == list(range(12)), crash
        if not crashed:
            return
    raise AssertionError("there are more writes than this test reckons with")


@pytest.mark.parametrize("there", [True, False])
def test_a_final_file_is_checked_where_it_is_there(setup: Setup, *, there: bool) -> None:
    lines = setup.logs.joined(*range(10))
    lines[5] = lines[5].replace(b'"b5"', b'"bX"')
    data = b"".join(lines)
    (setup.output / "joined").mkdir(exist_ok=True)
    if there:
        (setup.output / "joined" / "s0-000001.jsonl.gz").write_bytes(gzip.compress(data))
    entry = {"version": 1, "file": "joined/s0-000001.jsonl.gz", "uncompressed_bytes": len(data)}
    (setup.state / "manifest.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n")
    setup.durable({})
    checker = setup.checker()
    found = setup.all(checker)
    assert [each.finding for each in found] == [AlarmKind.DIFFERS] * there
    assert (checker.checked.lines, checker.checked.unverifiable) == ((10, 0) if there else (0, 1))


def test_a_damaged_range_is_passed_over_and_the_rest_is_checked(setup: Setup) -> None:
    lines = setup.logs.joined(*range(10))
    data = b"".join(lines)
    begin, end = len(b"".join(lines[:3])), len(b"".join(lines[:5]))
    setup.publish(joined=data)
    (setup.output / JOINED).write_bytes(data[:begin] + b"x" * (end - begin - 1) + b"\n" + data[end:])
    checker = setup.checker()
    assert [each.finding for each in setup.all(checker)] == [AlarmKind.TORN]
    (setup.state / "verifier/checked.json").unlink()
    add_damaged(RealDisk(), setup.state, "s0", [DamagedRange(JOINED, begin, end, "", "")])
    marked = setup.checker()
    assert setup.all(marked) == []
    assert (marked.checked.lines, marked.behind_bytes) == (8, 0)
    more = b"".join(setup.logs.joined(10, 11))
    setup.publish(joined=data + more)
    (setup.output / JOINED).write_bytes(data[:begin] + b"x" * (end - begin - 1) + b"\n" + data[end:] + more[:50])
    with pytest.raises(OutputShort):
        setup.all(marked)
    add_damaged(RealDisk(), setup.state, "s0", [DamagedRange(JOINED, len(data), len(data + more), "", "")])
    assert setup.all(marked) == [], "it has seen what was marked meanwhile"
    [published] = [read_slot(RealDisk(), setup.state)]
    assert checked_bytes(published, marked.checked) == len(data + more)


def test_a_final_file_is_checked_up_to_its_damage(setup: Setup) -> None:
    data = b"".join(setup.logs.joined(*range(40)))
    setup.publish(joined=data)
    plain = setup.output / JOINED
    packed = gzip.compress(data)
    plain.with_name("s0-000001.jsonl.gz").write_bytes(packed[: len(packed) // 2] + b"\xff" * 400)
    plain.unlink()
    setup.durable({})
    entry = {"version": 1, "file": "joined/s0-000001.jsonl.gz", "uncompressed_bytes": len(data)}
    (setup.state / "manifest.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n")
    end = data.find(b"\n", len(data) // 5) + 1
    add_damaged(RealDisk(), setup.state, "s0", [DamagedRange(JOINED, end, len(data), "", "")])
    checker = setup.checker()
    assert setup.all(checker) == []
    assert (checker.checked.lines, checker.behind_bytes) == (data[:end].count(b"\n"), 0)
