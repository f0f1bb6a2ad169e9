"""The endless stream: in order, bounded, the same in every directory, and its truth can be computed again."""

from __future__ import annotations

import asyncio
import itertools
from datetime import date
from pathlib import Path

import orjson
import pytest

from photon.config.errors import UsageError
from photon.lab.demo.endless import (
    ROLL_US,
    CannotTell,
    DayOptions,
    FeedOptions,
    LogWriter,
    StreamMade,
    feed,
    read_streams,
    truth_of,
    write_day,
)
from photon.lab.demo.generator import Arriving, Line

MADE = StreamMade(seed=5, rate=100, epoch_us=1_760_000_000_000_000)


def test_lines_come_in_the_order_in_which_they_arrive_and_none_is_left_out() -> None:
    arriving = Arriving(MADE.generator(keep_truth=False).rounds())
    found: list[Line] = []
    for now_us in range(0, 5_000_000, 37_000):
        lines = arriving.due(now_us)
        assert all(line.at_us <= now_us for line in lines)
        found += lines
    assert [line.at_us for line in found] == sorted(line.at_us for line in found)
    found += arriving.rest()
    assert arriving.taken == pytest.approx(500, abs=2)
    rounds = itertools.islice(MADE.generator(keep_truth=True).rounds(), arriving.taken)
    expected = [line for _, lines in rounds for line in lines]
    assert sorted(line.data for line in found) == sorted(line.data for line in expected)


def test_the_oldest_files_are_deleted_beyond_the_limit(tmp_path: Path) -> None:
    for name in ("queries", "clicks"):
        (tmp_path / name).mkdir()
    writer = LogWriter([tmp_path], "0000", keep=6000)
    for roll in range(10):
        lines = [Line(roll * ROLL_US + n, primary, b"x" * 499 + b"\n") for n, primary in enumerate([True, False])]
        writer.write(lines)
    names = sorted(path.name for path in tmp_path.rglob("*.log"))
    assert names == sorted(f"{side}-0000-{roll:06d}.log" for side in ("queries", "clicks") for roll in range(4, 10))
    assert writer.written == 10_000


async def write_until(tmp_path: Path, clicks: int, *, stop_at: int = 1 << 30) -> list[Path]:
    directories = [tmp_path / "east", tmp_path / "west"]
    stop = asyncio.Event()
    task = asyncio.create_task(feed(FeedOptions(directories, 500, 1, 1 << 30, stop_at), stop, lambda line: None))
    deadline = asyncio.get_running_loop().time() + 30
    while sum(path.read_bytes().count(b"\n") for path in directories[0].glob("clicks/*")) < clicks:
        assert asyncio.get_running_loop().time() < deadline
        assert not task.done(), task.result()
        await asyncio.sleep(0.02)
    stop.set()
    await task
    return directories


async def test_what_was_written_is_the_truth_of_all_streams(tmp_path: Path) -> None:
    await write_until(tmp_path, 20)
    east, west = await write_until(tmp_path, 100)
    streams = read_streams(east)
    assert [made.seed for made in streams] == [1, 2]
    truth = truth_of(east)
    assert len(truth.joined) + len(truth.unmatched) == sum(made.rounds or 0 for made in streams)
    lines = [line for path in sorted(east.glob("clicks/*")) for line in path.read_bytes().splitlines()]
    assert len(lines) == truth.lines
    assert set(truth.clicks.values()) <= set(lines)
    queries = [line for path in east.glob("queries/*") for line in path.read_bytes().splitlines()]
    assert set(truth.joined.values()) <= {orjson.loads(line)["query_id"] for line in queries}
    for path in east.rglob("*.log"):
        assert path.read_bytes() == (west / path.relative_to(east)).read_bytes()


async def test_nothing_more_is_written_after_so_much(tmp_path: Path) -> None:
    directories = [tmp_path / "east"]
    stop = asyncio.Event()
    said = asyncio.Event()
    options = FeedOptions(directories, 2000, 1, 1 << 30, stop_at=20_000)
    task = asyncio.create_task(feed(options, stop, lambda line: said.set() if "clicks written" in line else None))
    await asyncio.wait_for(said.wait(), 30)
    assert read_streams(directories[0])[0].rounds is not None
    size = sum(path.stat().st_size for path in directories[0].rglob("*.log"))
    assert size >= 20_000
    stop.set()
    await task
    assert size == sum(path.stat().st_size for path in directories[0].rglob("*.log"))


def test_a_stream_that_was_cut_short_has_no_truth(tmp_path: Path) -> None:
    with pytest.raises(CannotTell, match="no such file"):
        truth_of(tmp_path)
    cut = '{"version":1,"streams":[{"seed":1,"rate":5,"epoch_us":7,"rounds":null}]}'
    (tmp_path / "streams.json").write_text(cut)
    with pytest.raises(CannotTell, match="was interrupted by a kill"):
        truth_of(tmp_path)


def test_a_day_in_the_past_has_a_file_for_each_hour_and_all_of_its_truth(tmp_path: Path) -> None:
    east, west = tmp_path / "east", tmp_path / "west"
    lines = write_day(DayOptions([east, west], date(2024, 2, 29), 2_000, 7))
    names = sorted(path.name for path in east.glob("clicks/*"))
    assert names == [f"clicks-0000-2024-02-29T{hour:02d}.log" for hour in range(24)]
    assert lines == sum(path.read_bytes().count(b"\n") for path in east.rglob("*.log"))
    truth = truth_of(east)
    written = [line for path in sorted(east.glob("clicks/*")) for line in path.read_bytes().splitlines()]
    assert (len(truth.clicks), len(written)) == (2_000, truth.lines)
    assert set(truth.clicks.values()) <= set(written)
    times = [orjson.loads(record)["time_us"] for record in truth.clicks.values()]
    day_us = 1_709_164_800_000_000
    assert day_us <= min(times) < max(times) < day_us + 86_400_000_000
    for path in east.rglob("*.log"):
        assert path.read_bytes() == (west / path.relative_to(east)).read_bytes()


def test_a_second_day_is_a_stream_of_its_own(tmp_path: Path) -> None:
    for number in range(2):
        write_day(DayOptions([tmp_path], date(2024, 2, 28 + number), 100, 1))
    assert len(truth_of(tmp_path).clicks) == 200
    assert len(list(tmp_path.glob("clicks/*"))) == 48


def test_what_a_day_that_was_cut_short_left_is_refused(tmp_path: Path) -> None:
    write_day(DayOptions([tmp_path], date(2024, 2, 28), 100, 1))
    (tmp_path / "streams.json").unlink()
    with pytest.raises(UsageError, match="is left over from an interrupted run"):
        write_day(DayOptions([tmp_path], date(2024, 2, 28), 100, 1))
