"""What is decided once more: which bytes, which events of them, and which ids that the registry gave up."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from photon.joiner.verdicts import tag_of
from photon.spark.pipeline.given_up import AGAIN, Search
from photon.spark.pipeline.journal import Decision, Ended, GivenUp, Plan, Reread, RereadAt
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.pipeline.rereading import asked_for, gone_from, moved, parts_of
from tests.unit.spark.pipeline.logs import NOW_NS, RECORD_MAX, Logs, click
from tests.unit.spark.pipeline.test_reading_parts import ids

SMALL = PlanLimits(part_bytes=2000, packed_bytes=3000, batch_bytes=1 << 20, reread_bytes=5000, max_record=RECORD_MAX)
ALL_OF_IT = Reread(asked_ns=NOW_NS, to_ns=NOW_NS)


def filled(tmp_path: Path) -> Logs:
    """200 clicks in a plain and 300 in a compressed log, all decided."""
    logs = Logs(tmp_path, SMALL)
    (logs.directory / "a.log").write_bytes(b"".join(map(click, range(200))))
    (logs.directory / "b.log.gz").write_bytes(gzip.compress(b"".join(map(click, range(200, 500)))))
    while logs.plan():
        logs.batch()
    return logs


def reread(logs: Logs, wanted: Reread) -> tuple[list[bytes], RereadAt, int]:
    """Ids of the events found, in the order of reading; how far it came, and the number of batches."""
    found, at, batches = list[bytes](), RereadAt(), 0
    number = logs.journal.ask_reread(wanted)
    while parts := parts_of(wanted, at, logs.listed(), logs.known, logs.limits):
        plan = Plan(
            number=0, incarnation=1, at_ns=NOW_NS, first_read_ns=NOW_NS, read_past_ns=0, parts=parts, reread=number
        )
        read = logs.read_plan(plan)
        decisions = [Decision(reached=each.reached, counts={"reread": each.fresh}) for each in read]
        at, batches = moved(at, number, parts, decisions), batches + 1
        found += [event_id for each in read for event_id in each.events.ids]
        assert not any(each.rejected for each in read)
    return found, at, batches


def test_every_decided_record_of_the_range_is_found_once_over_many_batches(tmp_path: Path) -> None:
    logs = filled(tmp_path)
    with (logs.directory / "a.log").open("ab") as log:
        log.write(click(900))  # not decided yet
    found, at, batches = reread(logs, msgspec.structs.replace(ALL_OF_IT, from_ns=50_000, to_ns=450_000))
    assert sorted(found) == sorted(ids(*range(50, 450)))
    assert (at.events, batches > 2) == (400, True)


def test_only_logs_that_match_are_read_and_those_that_are_gone_are_named(tmp_path: Path) -> None:
    logs = filled(tmp_path)
    (logs.directory / "a.log").rename(tmp_path / "a.log")
    found, _, _ = reread(logs, msgspec.structs.replace(ALL_OF_IT, pattern="b*"))
    assert sorted(found) == ids(*range(200, 500))
    assert gone_from(ALL_OF_IT, RereadAt(), logs.listed(), logs.known) == ["a.log"]
    assert gone_from(msgspec.structs.replace(ALL_OF_IT, pattern="b*"), RereadAt(), logs.listed(), logs.known) == []
    late = msgspec.structs.replace(ALL_OF_IT, from_ns=1 << 62)
    assert gone_from(late, RereadAt(), logs.listed(), logs.known) == []


def test_a_log_that_disappears_between_plan_and_read_is_passed_over(tmp_path: Path) -> None:
    logs = filled(tmp_path)
    parts = parts_of(ALL_OF_IT, RereadAt(), logs.listed(), logs.known, logs.limits)
    first = parts[0].stretches[0].log
    (logs.directory / first.path).unlink()
    read = logs.read(parts)
    at = moved(RereadAt(), 7, parts, [Decision(reached=each.reached) for each in read])
    left = parts_of(ALL_OF_IT, at, logs.listed(), logs.known, logs.limits)
    assert {stretch.log.path for part in left for stretch in part.stretches}.isdisjoint({first.path})
    assert first.path in gone_from(ALL_OF_IT, at, logs.listed(), logs.known)


@pytest.mark.parametrize("any_line", [False, True])
def test_ids_are_found_with_their_generation_and_by_their_line(tmp_path: Path, any_line: bool) -> None:
    logs = filled(tmp_path)
    [read] = logs.read(parts_of(ALL_OF_IT, RereadAt(), logs.listed()[:1], logs.known, PlanLimits(max_record=1000)))
    one, other = read.events.row(3), read.events.row(5)
    given = [GivenUp(one.digest, 2, 0, tag_of(one)), GivenUp(other.digest, 1, 0, tag_of(other) ^ 1)]
    found = asked_for(Reread(asked_ns=0, ids=given, any_line=any_line), read.events)
    wanted = [(one.event_id, 2), (other.event_id, 1)]
    assert [(row.event_id, row.generation) for row in found.rows()] == wanted[: 2 if any_line else 1]


def test_ids_are_searched_for_by_line_then_by_any_line_then_more_and_more_seldom() -> None:
    search, listed = Search(), [GivenUp(b"%016d" % n, 1, n, 0) for n in range(3)]
    waits = frozenset({listed[0].digest})

    def ordered(at_s: float, some: Sequence[GivenUp] = listed, *, free: bool = True) -> Reread | None:
        return search.next(some, waits, at_s, NOW_NS, free=free)

    assert ordered(0.0, free=False) is None
    assert ordered(0.0) == Reread(asked_ns=NOW_NS, ids=listed[1:])
    assert ordered(0.5, free=False) is None  # it is under way
    assert ordered(1.0) == Reread(asked_ns=NOW_NS, ids=listed[1:], any_line=True)
    assert (ordered(1.5, free=False), search.missing, list(search.open)) == (None, 0, listed)
    assert (ordered(2.0), search.missing, list(search.open)) == (None, 2, listed[:1])
    again = Reread(asked_ns=NOW_NS, ids=listed[1:2], any_line=True)
    assert ordered(2 * AGAIN.first + 1.0, listed[:2]) == again
    assert ordered(2 * AGAIN.first + 2.0, listed[:2]) is None


def test_orders_are_numbered_and_end_once(tmp_path: Path) -> None:
    journal = Logs(tmp_path, SMALL).journal
    assert [journal.ask_reread(ALL_OF_IT) for _ in range(2)] == [1, 2]
    done = journal.end_reread(1, Ended(at_ns=5, events=3))
    assert journal.end_reread(1, Ended(at_ns=9, cancelled=True)) == done
    assert journal.rereads() == {1: True, 2: False}
    assert not journal.is_searching()
    journal.ask_reread(Reread(asked_ns=0, ids=[GivenUp(b"x" * 16, 1, 0, 0)]))
    assert journal.is_searching()
