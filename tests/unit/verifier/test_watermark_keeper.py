"""The keeper of watermarks: its journal, its restart, and its report when there is nobody to ask."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.config.disk import RealAppendFile, RealDisk
from photon.config.errors import UsageError
from photon.config.metrics.readings import Readings
from photon.outputs import watermarks
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.watermarks import JOURNAL, late_in, pairs_of, read_journal
from photon.verifier.watermark import SlotShown
from photon.verifier.watermark_keeper import WatermarkKeeper
from tests.kit.clock import ManualClock

S = NS_PER_S
LOG = OutputLog("s0", "joined")
FILE = "joined/s0-000001.jsonl"


@dataclass
class _Asked:
    read_ns: int | None = 100 * S
    why: str = ""
    moving_ns: int = NEVER_NS
    oldest_ns: int = NEVER_NS
    said_ns: int = 1000 * S
    who: str = "its dispatcher"

    def before(self, time_ns: int) -> int:
        return 3


class _FullDisk(RealDisk):
    full = False

    def replace(self, path: Path, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        super().replace(path, data)


@dataclass
class Pipeline:
    state: Path
    asked: _Asked | None = field(default_factory=_Asked)
    slots: list[SlotShown] = field(default_factory=lambda: [SlotShown("s0", NEVER_NS)])
    at: int = 10
    others: int = 0  # further slots, which publish nothing new
    order: list[str] = field(default_factory=list)
    fails: bool = False
    timed: bool = True
    disk: _FullDisk = field(default_factory=_FullDisk)

    def keeper(self) -> WatermarkKeeper:
        keeper = WatermarkKeeper(
            self.disk,
            ManualClock(1000 * S),
            self.state,
            10 * S,
            undecided=self._undecided,
            slots=self._ask,
            cursor=self._cursor,
            timed=self.timed,
        )
        keeper.open()
        return keeper

    @contextmanager
    def _undecided(self) -> Iterator[_Asked | None]:
        self.order.append("dispatcher")
        if self.fails:
            raise UsageError("there is no dispatcher state")
        yield self.asked

    async def _ask(self) -> Sequence[SlotShown]:
        self.order.append("slots")
        return self.slots

    def _cursor(self) -> tuple[Cursor, Sequence[str]]:
        self.order.append("published")
        others = {OutputLog(f"other-{number}", "joined"): Position(1, 5) for number in range(self.others)}
        return Cursor({LOG: Position(1, self.at), **others}), ()


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


async def test_it_samples_in_order_journals_what_moved_and_goes_on_after_a_restart(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    keeper = pipeline.keeper()
    await keeper.pass_()
    await keeper.pass_()
    assert pipeline.order == ["dispatcher", "slots", "published"] * 2
    (pair,) = pairs_of(read_journal(RealDisk(), tmp_path))
    assert (pair.exact_ns, pair.percentile_ns, pair.waiting, pair.at_ns) == (90 * S, 100 * S, 3, 1000 * S)
    pipeline.asked = _Asked(read_ns=50 * S)
    again = pipeline.keeper()
    await again.pass_()
    assert again.watermarks.last == pair
    metrics = Readings()
    again.read(metrics)
    assert 'photon_watermark_lag_seconds{kind="exact"} 910' in metrics.text()
    assert again.details()["watermark"]["line"] == pair.encode().decode()


async def test_events_without_a_time_have_no_watermark(pipeline: Pipeline, tmp_path: Path) -> None:
    """All events have one time, so any watermark would pass those that still come."""
    pipeline.timed = False
    keeper = pipeline.keeper()
    await keeper.pass_()
    assert keeper.watermarks.last is None
    assert pairs_of(read_journal(RealDisk(), tmp_path)) == []


@pytest.mark.parametrize("why", ["has not reported yet", "no dispatcher state"])
async def test_where_nobody_can_be_asked_what_held_holds_and_that_is_said(pipeline: Pipeline, why: str) -> None:
    keeper = pipeline.keeper()
    pipeline.fails = why.startswith("no")
    pipeline.asked = None
    await keeper.pass_()
    assert keeper.watermarks.last is None
    assert keeper.details() == {}
    metrics = Readings()
    keeper.read(metrics)
    pipeline.fails, pipeline.asked = False, _Asked()
    await keeper.pass_()
    pipeline.fails, pipeline.asked = why.startswith("no"), None
    await keeper.pass_()
    last = keeper.watermarks.last
    assert last.exact_ns == 90 * S
    assert why in last.held_by[0]


async def test_late_records_are_journaled_once(pipeline: Pipeline, tmp_path: Path) -> None:
    keeper = pipeline.keeper()
    await keeper.pass_()
    keeper.published(FILE, [5, 15], [80 * S, 80 * S])
    assert keeper.watermarks.late_records == 1
    again = pipeline.keeper()
    again.published(FILE, [5, 15, 25], [80 * S, 80 * S, 95 * S])
    assert again.watermarks.late_records == late_in(read_journal(RealDisk(), tmp_path)) == 1


async def test_the_journal_does_not_grow_without_end(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LINES_MAX", 20), ("NEWEST_KEPT", 5), ("OLDER_KEPT", 5)):
        monkeypatch.setattr(watermarks, name, value)
    keeper = pipeline.keeper()
    for number in range(100):
        pipeline.asked = _Asked(read_ns=(100 + number) * S)
        await keeper.pass_()
    pairs = pairs_of(read_journal(RealDisk(), tmp_path))
    assert len(pairs) < 20
    assert pairs[-1].exact_ns == 189 * S
    assert (tmp_path / JOURNAL).read_bytes().count(b"\n") == len(pairs)


async def test_a_full_disk_while_the_journal_is_rewritten_only_delays_watermarks(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LINES_MAX", 20), ("NEWEST_KEPT", 5), ("OLDER_KEPT", 5)):
        monkeypatch.setattr(watermarks, name, value)
    keeper = pipeline.keeper()
    for number in range(100):
        pipeline.disk.full = number in range(15, 60)
        pipeline.asked = _Asked(read_ns=(100 + number) * S)
        await keeper.pass_()
        last = keeper.watermarks.last
        assert pairs_of(read_journal(RealDisk(), tmp_path))[-1] == last
        assert last.exact_ns == (108 if number in range(19, 60) else 90 + number) * S


async def test_a_line_torn_by_a_full_disk_takes_no_other_with_it(pipeline: Pipeline, tmp_path: Path) -> None:
    keeper = pipeline.keeper()
    await keeper.pass_()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RealAppendFile, "write", _torn)
        pipeline.asked = _Asked(read_ns=110 * S)
        await keeper.pass_()
    pipeline.asked = _Asked(read_ns=120 * S)
    await keeper.pass_()
    assert [each.exact_ns for each in pairs_of(read_journal(RealDisk(), tmp_path))] == [90 * S, 110 * S]


def _torn(file: RealAppendFile, line: bytes) -> None:
    os.write(file._fd, line[:9])
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_the_journal_is_bounded_however_many_slots_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "BYTES_MAX", 40_000)
    pipeline = Pipeline(tmp_path, others=50)
    keeper = pipeline.keeper()
    for number in range(100):
        pipeline.asked = _Asked(read_ns=(100 + number) * S)
        await keeper.pass_()
        assert (tmp_path / JOURNAL).stat().st_size <= 40_000
    pairs = pairs_of(read_journal(RealDisk(), tmp_path))
    assert 5 < len(pairs) < 40
    assert pairs[-1].exact_ns == 189 * S
    monkeypatch.setattr(watermarks, "BYTES_MAX", 10)
    assert pipeline.keeper().watermarks.last == pairs[-1], "the newest ones stay whatever they have"
