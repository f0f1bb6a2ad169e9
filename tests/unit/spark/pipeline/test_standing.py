"""Facts about a join on Spark that others read: places, waiting events, the ledger, claims for the watermark."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from photon.adapters.logs.lag import LogLag
from photon.adapters.logs.slices import StandingLog
from photon.batch.events import Events, ForeignEvent
from photon.batch.files import LogFile
from photon.config.disk import RealDisk
from photon.fleet.explain.dispatchers import in_waiting_files, places_on_spark
from photon.fleet.explain.question import Budget, question_of
from photon.fleet.watermarks import undecided_of
from photon.operations.spark_verify import Overdue, _on_spark
from photon.spark.pipeline.claim import Claim, claimed
from photon.spark.pipeline.journal import CLAIM, Commit, JoinOf, Journal, JournalDamaged, LogAt, journal_of
from photon.spark.pipeline.listing import NO_LISTING, Listing
from photon.spark.pipeline.planner import PlanLimits, left_of, unread
from photon.spark.pipeline.standing import ledger_of, read_standing
from photon.spark.pipeline.waiting import encode_waiting

FOREVER = Budget(60.0, lambda: 0.0)
S = 10**9
HOUR_NS = 3600 * S
LOG = LogAt("log", "a.log", b"", 0, True, 70, 100, 5, False, 1)
COUNTS = {"events": 9, "unreadable": 1, "joined": 4, "rejected": 1, "own": 1, "repeats": 1}


def event(number: int) -> ForeignEvent:
    name = b"id%d" % number
    return ForeignEvent(
        name, name.ljust(16, b"-"), number * HOUR_NS, b"key", b"record", LogFile("a.log", b""), number * 10, 0
    )


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Of four events that were read at 5 s, two wait: of the hours 1 and 3."""
    made = Journal(RealDisk(), journal_of(tmp_path, "east-spark"))
    made.prepare(JoinOf("clicks", "east"))
    some = Events.of([event(number) for number in range(4)])
    data = encode_waiting(some, np.full(4, 5 * S), np.zeros(4, np.int64))
    made.disk.replace(made.waiting_path("000000000-0000.a.events"), data)
    waiting = {"000000000-0000.a.events": [1, 3]}
    made.put_commit(Commit(number=0, logs=[LOG], waiting=waiting, whole=True, counts=COUNTS))
    return made


def test_an_event_that_waits_is_found_and_where_its_log_goes_on(journal: Journal) -> None:
    found = in_waiting_files(journal.directory, question_of("id3"), FOREVER)
    (one,) = found.waiting
    assert (one.event_id, one.source_file, one.source_offset, one.first_read_ns) == (b"id3", "a.log", 30, 5 * S)
    assert found.searched[0].what.endswith("(2 events)")
    assert not in_waiting_files(journal.directory, question_of("id2"), FOREVER).waiting  # it has a verdict
    assert in_waiting_files(journal.directory, question_of("a.log:10"), FOREVER).waiting[0].event_id == b"id1"
    assert places_on_spark(journal.directory) == {"log": 70}


def test_a_verification_knows_places_and_what_waits_for_too_long(journal: Journal) -> None:
    found = _on_spark(journal.directory, Overdue(2 * HOUR_NS, 4 * HOUR_NS, 6 * S))
    assert found == ([("log", 70, "a.log")], [event(1).digest, event(3).digest], 1)
    found = _on_spark(journal.directory, Overdue(0, 4 * HOUR_NS, 5 * S))
    assert found is not None
    assert found[2] == 0


def test_a_reader_looks_again_if_the_driver_has_settled_a_file_meanwhile(journal: Journal) -> None:
    looks = 0

    def settled(*_: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            journal.put_commit(Commit(number=1, logs=[], waiting={"x": [0]}, whole=False, counts=COUNTS))
            raise JournalDamaged("it is gone")

    with pytest.raises(
        JournalDamaged, match=r"waiting/x: unreadable"
    ):  # no commit is newer than the one that names x
        read_standing(journal.disk, journal.directory, settled)
    assert looks == 3


def test_the_ledger_balances(journal: Journal) -> None:
    line = ledger_of(COUNTS, waiting=2)
    assert (line.read, line.pending, line.balance) == (10, 2, 0)


# -- the watermark ---------------------------------------------------------------------------------------------------
def listing(size: int, seen_s: int, doubt: str = "") -> Listing:
    return Listing([StandingLog("a.log", "log", b"", 0, size, 7, True)], seen_s * S, doubt)


def lag(found: Listing, known: dict[str, LogAt]) -> list[LogLag]:
    return [
        LogLag(log.path, left_of(log, known), log.mtime_ns) for log in unread(found.logs, known, PlanLimits(), 10**12)
    ]


def test_a_claim_goes_as_far_as_a_listing_whose_logs_are_decided_to_their_ends() -> None:
    read = {"log": msgspec.structs.replace(LOG, offset=100, size=100, mtime_ns=7, ended=True)}
    found = claimed(None, listing(100, 50), lag(listing(100, 50), read), [(1, 2)], 60 * S)
    assert found == Claim(at_ns=60 * S, read_ns=50 * S, why="", waiting=[(1, 2)])
    grown = listing(130, 55)
    assert [each.bytes for each in lag(grown, read)] == [30]
    later = claimed(found, grown, lag(grown, read), [], 70 * S)
    assert (later.read_ns, later.why, later.at_ns) == (50 * S, "a.log is not read to its end", 70 * S)
    doubtful = claimed(found, listing(100, 56, "b.log: cannot be read"), [], [], 70 * S)
    assert (doubtful.read_ns, doubtful.why) == (50 * S, "b.log: cannot be read")
    assert claimed(None, NO_LISTING, [], [], 70 * S).read_ns is None  # nothing was listed yet


def test_a_claim_is_read_as_a_dispatchers(journal: Journal, tmp_path: Path) -> None:
    with undecided_of(tmp_path, "east-spark") as undecided:
        assert undecided is None
    journal.put_last(CLAIM, Claim(at_ns=60 * S, read_ns=50 * S, why="", waiting=[(300, 2), (400, 1)]))
    with undecided_of(tmp_path, "east-spark") as undecided:
        assert undecided is not None
        assert (undecided.said_ns, undecided.read_ns, undecided.oldest_ns) == (60 * S, 50 * S, 30 * S)
        assert [undecided.before(at * S) for at in (30, 31, 41)] == [0, 2, 3]
