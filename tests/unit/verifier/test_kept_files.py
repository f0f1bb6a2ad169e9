"""Output files that somebody changes after they were published and verified."""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from photon.config.clock import NS_PER_S
from photon.config.disk import RealDisk
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DURABLE_NAME, MANIFEST_NAME, DamagedRange, Durable, ManifestEntry, gzip_name
from photon.verifier.alarms import OPEN_MAX, AlarmLog, open_alarms
from photon.verifier.slot_work import KeptStep, SlotPlace
from tests.kit.clock import ManualClock

DISK = RealDisk()
LINES = b'{"event_id":"a"}\n' * 100
FIRST, LAST, GROWING = (f"joined/s0-{number:06d}.jsonl" for number in (1, 2, 3))
FAR_NS = 1 << 62  # later than any change of a file here


class Kept:
    """Two final files, the second one compressed, and one that grows."""

    def __init__(self, path: Path) -> None:
        self.output, self.state = path / "output", path / "state"
        self.own, self.clock = self.state / "verifier", ManualClock(FAR_NS)
        (self.output / "joined").mkdir(parents=True)
        self.own.mkdir(parents=True)
        entries = []
        for name in (FIRST, LAST):
            stored = self.of(name)
            stored.write_bytes(LINES if stored.suffix == ".jsonl" else gzip.compress(LINES))
            relative = str(stored.relative_to(self.output))
            entries.append(ManifestEntry(relative, len(LINES), stored.stat().st_size, 100, zlib.crc32(LINES)))
        (self.state / MANIFEST_NAME).write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in entries))
        self.of(GROWING).write_bytes(LINES)
        (self.state / DURABLE_NAME).write_bytes(msgspec.json.encode(Durable("s0", {GROWING: len(LINES)})))
        self.start()

    def of(self, name: str) -> Path:
        return self.output / (gzip_name(name) if name == LAST else name)

    def start(self, bytes_max: int = 1 << 20) -> None:
        """A verifier that starts."""
        place = SlotPlace("s0", self.state, self.own)
        alarms = AlarmLog(DISK, self.own, "s0")
        self.step = KeptStep(DISK, place, self.output, alarms, self.clock, 30.0, bytes_max)

    async def alarms(self) -> dict[str, str]:
        """File -> what its alarm says, after another look."""
        self.clock.passes(30.0)
        await self.step.pass_()
        stand = open_alarms(DISK, self.own)
        assert {each.finding for each in stand} <= {"changed"}
        return {each.file: each.what for each in stand}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def lines_cut(path: Path) -> None:
    path.write_bytes(LINES[: len(LINES) // 2])


def other_bytes(path: Path) -> None:
    """At the same length, with the same time of change."""
    times, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(LINES.replace(b"a", b"b"))
    new.rename(path)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "does", "says"),
    [
        (FIRST, halve, "has 850 bytes, but 1700 were published"),
        (FIRST, lines_cut, "has 850 bytes, but 1700 were published"),
        (FIRST, other_bytes, "changed after it was published: checksum"),
        (FIRST, replaced, "changed after it was published: checksum"),
        (LAST, halve, "were published"),
        (LAST, other_bytes, "is damaged"),
        (LAST, emptied, "were published"),
        (GROWING, halve, "has 850 bytes, but 1700 were published"),
        (GROWING, Path.unlink, "is gone"),
    ],
)
async def test_a_changed_file_is_told_until_it_is_put_back(
    kept: Kept, name: str, does: Callable[[Path], None], says: str
) -> None:
    assert await kept.alarms() == {}
    path = kept.of(name)
    shutil.copy2(path, kept.state / "copy")
    does(path)
    for _ in range(2):
        told = await kept.alarms()
        assert list(told) == [name]
        assert says in told[name]
        kept.start()
    shutil.copy2(kept.state / "copy", path)
    assert await kept.alarms() == {}


async def test_a_change_while_no_verifier_runs(kept: Kept) -> None:
    assert await kept.alarms() == {}
    other_bytes(kept.of(FIRST))
    kept.start()
    assert list(await kept.alarms()) == [FIRST]


async def test_what_people_may_do_is_not_told(kept: Kept) -> None:
    kept.of(FIRST).touch()
    assert await kept.alarms() == {}
    kept.of(FIRST).with_name(gzip_name(kept.of(FIRST).name)).write_bytes(gzip.compress(LINES))
    kept.of(FIRST).unlink()
    assert await kept.alarms() == {}
    kept.of(FIRST).with_name(gzip_name(kept.of(FIRST).name)).unlink()  # archived
    kept.of(GROWING).write_bytes(2 * LINES)
    assert await kept.alarms() == {}


async def test_a_file_whose_loss_is_marked_is_not_told_any_more(kept: Kept) -> None:
    halve(kept.of(FIRST))
    assert list(await kept.alarms()) == [FIRST]
    add_damaged(DISK, kept.state, "s0", [DamagedRange(FIRST, 850, 1700, "cut", "")])
    assert await kept.alarms() == {}


async def test_a_disk_that_was_away_comes_back_as_it_was(kept: Kept) -> None:
    (kept.state / DURABLE_NAME).write_bytes(msgspec.json.encode(Durable("s0", {})))
    assert await kept.alarms() == {}
    kept.output.rename(kept.state / "away")
    assert list(await kept.alarms()) == [LAST]  # the other one may have been archived
    (kept.state / "away").rename(kept.output)
    assert await kept.alarms() == {}


async def test_many_changed_files_are_read_over_several_looks(kept: Kept) -> None:
    for name in (FIRST, LAST):
        other_bytes(kept.of(name))
    told = []
    for _ in range(3):
        kept.start(bytes_max=1)
        told.append(len(await kept.alarms()))
    assert told == [1, 2, 2]


async def test_changes_of_this_moment_are_looked_at_next_time(kept: Kept) -> None:
    assert await kept.alarms() == {}
    other_bytes(kept.of(FIRST))
    kept.clock.ns = kept.of(FIRST).stat().st_ctime_ns - 30 * NS_PER_S
    kept.start()
    assert await kept.alarms() == {}
    assert list(await kept.alarms()) == [FIRST]


async def test_a_lost_disk_does_not_flood_the_log(kept: Kept) -> None:
    names = [f"joined/s0-{number:06d}.jsonl" for number in range(3, OPEN_MAX + 20)]
    (kept.state / DURABLE_NAME).write_bytes(msgspec.json.encode(Durable("s0", dict.fromkeys(names, 5))))
    assert len(await kept.alarms()) <= OPEN_MAX
