"""Parts of logs that grow, are renamed and are compressed: each record is in one batch, and in one part of it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from random import Random

import pytest

from photon.adapters.logs.slices import LogUnreadable
from photon.spark.pipeline.planner import PlanLimits
from tests.unit.spark.pipeline.logs import RECORD_MAX, Logs, click

SMALL = PlanLimits(part_bytes=4000, packed_bytes=4000, batch_bytes=40_000, max_record=RECORD_MAX)


def ids(*numbers: int) -> list[bytes]:
    return [b"c%d" % number for number in numbers]


def test_a_growing_log_is_read_once_and_an_unfinished_line_later(tmp_path: Path) -> None:
    logs = Logs(tmp_path, SMALL)
    log = logs.directory / "a.log"
    log.write_bytes(click(0) + click(1) + click(2)[:9])
    assert logs.batch() == ids(0, 1)
    with log.open("ab") as file:
        file.write(click(2)[9:] + click(3))
    assert logs.batch() == ids(2, 3)
    assert logs.plan() == []


@pytest.mark.parametrize("seed", range(5))
def test_a_large_log_is_cut_and_each_record_read_in_one_part(tmp_path: Path, seed: int) -> None:
    random, logs = Random(seed), Logs(tmp_path, SMALL)
    log, seen, count = logs.directory / "a.log", list[bytes](), 0
    for _ in range(6):
        added = random.randint(1, 900)
        with log.open("ab") as file:
            file.writelines(map(click, range(count, count + added)))
        count += added
        assert max(len(logs.plan()), 1) <= SMALL.batch_bytes // SMALL.part_bytes
        seen += logs.batch()
    while logs.plan():
        seen += logs.batch()
    assert seen == ids(*range(count))


def test_a_log_that_is_rolled_and_compressed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Error 7: offsets of a compressed log are those of its content, and a batch is repeated after a renaming."""
    logs = Logs(tmp_path, SMALL)
    log = logs.directory / "a.log"
    log.write_bytes(b"".join(map(click, range(50))))
    assert logs.batch() == ids(*range(50))
    with log.open("ab") as file:
        file.writelines(map(click, range(50, 80)))
    planned = logs.plan()
    log.rename(logs.directory / "a.log.1")
    assert [each for read in logs.read(planned) for each in read.events.ids] == ids(*range(50, 80))
    (logs.directory / "a.log.1.gz").write_bytes(gzip.compress((logs.directory / "a.log.1").read_bytes()))
    (logs.directory / "a.log.1").unlink()
    assert [each for read in logs.read(planned) for each in read.events.ids] == ids(*range(50, 80))
    assert logs.batch() == ids(*range(50, 80))
    assert logs.batch() == []


def test_a_large_compressed_log_is_read_in_several_batches(tmp_path: Path) -> None:
    logs = Logs(tmp_path, SMALL)
    (logs.directory / "a.log.gz").write_bytes(gzip.compress(b"".join(map(click, range(60_000)))))
    seen, batches = list[bytes](), 0
    while logs.plan():
        seen += logs.batch()
        batches += 1
    assert seen == ids(*range(60_000))
    assert batches > 1


def test_a_log_that_became_shorter_since_it_was_planned_is_told(tmp_path: Path) -> None:
    logs = Logs(tmp_path, SMALL)
    log = logs.directory / "a.log"
    log.write_bytes(b"".join(map(click, range(300))))
    planned = logs.plan()
    log.write_bytes(b"".join(map(click, range(20))))
    with pytest.raises(LogUnreadable, match=r"a\.log: ends before byte 4000, which existed when the batch was"):
        logs.read(planned)


def test_the_last_line_of_a_log_at_rest_counts_a_minute_later(tmp_path: Path) -> None:
    logs = Logs(tmp_path, SMALL)
    log = logs.directory / "a.log"
    log.write_bytes(click(0) + click(1).rstrip())
    logs.now_ns = log.stat().st_mtime_ns
    assert logs.batch() == ids(0)
    assert logs.plan() == []
    logs.now_ns += 61 * 10**9
    assert logs.batch() == ids(1)
    assert logs.plan() == []


def test_another_log_that_has_the_name_by_now_is_not_read_for_it(tmp_path: Path) -> None:
    """It was rolled between the plan and the reading, and the path of the plan leads to its successor."""
    logs = Logs(tmp_path, SMALL)
    log = logs.directory / "a.log"
    log.write_bytes(click(0) + click(1))
    listed = logs.listed
    for number in (2, 3):
        planned = logs.plan()
        log.rename(logs.directory / f"a.log.{number}")
        log.write_bytes(click(10 * number))
        logs.listed = list  # type: ignore[method-assign]  # nobody looks again
        assert [len(read.events) for read in logs.read(planned)] == [0]
        logs.listed = listed  # type: ignore[method-assign]
        assert sorted(logs.batch()) == ([*ids(0, 1), b"c20"] if number == 2 else ids(30, 7))
        with log.open("ab") as file:
            file.write(click(7))


def test_logs_that_begin_alike_keep_their_places_when_one_is_deleted(tmp_path: Path) -> None:
    """They are numbered from the oldest: without a proof, the second one would be taken for the first."""
    logs = Logs(tmp_path, SMALL)
    for number in (1, 2, 3):
        log = logs.directory / f"a.log.{number}"
        log.write_bytes(click(0) + click(number))
        os.utime(log, ns=(number * 10**9, number * 10**9))
    assert sorted(logs.batch()) == [b"c0"] * 3 + ids(1, 2, 3)
    (logs.directory / "a.log.1").unlink()
    for number in (2, 3):
        with (logs.directory / f"a.log.{number}").open("ab") as file:
            file.write(click(10 * number))
    assert sorted(logs.batch()) == ids(20, 30)
    assert logs.plan() == []


def test_a_log_that_is_gone_leaves_the_others_to_be_read(tmp_path: Path) -> None:
    logs = Logs(tmp_path, SMALL)
    for name, number in (("a.log", 1), ("b.log", 2)):
        (logs.directory / name).write_bytes(click(number))
    planned = logs.plan()
    (logs.directory / "a.log").unlink()
    (read,) = logs.read(planned)
    assert list(read.events.ids) == ids(2)
    assert [(each.offset, each.ended) for each in read.reached] == [(0, False), (len(click(2)), True)]
