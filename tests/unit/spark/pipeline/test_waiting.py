"""The index of waiting events, and their files."""

from __future__ import annotations

import numpy as np

from photon.batch.events import Events, ForeignEvent
from photon.batch.files import LogFile
from photon.config.versioned_file import decoded
from photon.dispatcher.retry import Patience
from photon.joiner.api import WAIT_NS
from photon.spark.pipeline.journal import Rest
from photon.spark.pipeline.waiting import (
    WaitingFile,
    WaitingIndex,
    as_of,
    encode_waiting,
    events_of,
    first_read_of,
    hashes_of,
)

S = 10**9
PATIENCE = Patience(unmatched_after_ns=100 * S)


def events(*keys: bytes) -> Events:
    file = LogFile("a.log", b"head")
    return Events.of(
        ForeignEvent(b"id-" + key, key * 4, at * S, key, b"record " + key, file, at, 0) for at, key in enumerate(keys)
    )


def file_of(some: Events, first_s: int, again_s: int = 0) -> WaitingFile:
    import msgspec

    n = len(some)
    data = encode_waiting(some, np.full(n, first_s * S), np.full(n, again_s * S))
    return decoded(data, WaitingFile, msgspec.msgpack.decode)


def index() -> WaitingIndex:
    return WaitingIndex(PATIENCE, lambda: 0.0, followed=True)


def due(waiting: WaitingIndex, read_past_s: int, now_s: int) -> list[Rest]:
    return waiting.due(read_past_s * S, now_s * S, 1000)


def test_a_file_holds_events_as_they_were_read() -> None:
    some = events(b"aaaa", b"bbbb")
    file = file_of(some, 7)
    assert events_of(file).rows() == some.rows()
    assert first_read_of(file).tolist() == [7 * S] * 2


def test_an_event_is_tried_again_when_its_key_comes_or_its_patience_ends_or_after_some_minutes() -> None:
    waiting = index()
    waiting.add("f", file_of(events(b"aaaa", b"bbbb"), first_s=50), [0, 1], read_past_ns=60 * S, now_ns=60 * S)
    assert due(waiting, 60, 61) == []
    assert due(waiting, 150, 61) == [Rest("f", [0, 1])]
    assert due(waiting, 60, 60 + 150) == [Rest("f", [0, 1])]
    waiting.wake(hashes_of([b"bbbb", b"other"]))
    for _ in range(2):  # until it is tried: a batch may be repeated, or be full
        assert due(waiting, 60, 61) == [Rest("f", [1])]
    waiting.tried("f", [1], 60 * S, 61 * S)
    assert due(waiting, 60, 62) == []
    assert not waiting.is_any_untried()


def test_each_file_has_its_turn_where_a_batch_takes_fewer_rows_than_are_due() -> None:
    waiting, tried = WaitingIndex(PATIENCE, lambda: 0.0), set[str]()
    for name in "abc":
        waiting.add(name, file_of(events(name.encode() * 4), first_s=50), [0], 60 * S, now_ns=60 * S)
    for batch in range(3):  # each takes longer than the time between two tries
        (rest,) = waiting.due(60 * S, (70 + 10 * batch) * S, most=1)
        tried.add(rest.file)
        waiting.tried(rest.file, rest.rows, 60 * S, (70 + 10 * batch) * S)
    assert tried == {"a", "b", "c"}
    waiting.wake(hashes_of([b"cccc"]))
    assert waiting.due(60 * S, 200 * S, most=1) == [Rest("c", [0])]


def test_an_event_read_before_the_primary_logs_were_read_so_far_is_tried_once_they_are() -> None:
    """Its primary may be in bytes that were written before it was read."""
    waiting = index()
    waiting.add("f", file_of(events(b"aaaa"), first_s=50), [0], read_past_ns=40 * S, now_ns=50 * S)
    assert waiting.is_any_untried()
    assert due(waiting, 49, 51) == []
    assert due(waiting, 50, 51) == [Rest("f", [0])]
    waiting.tried("f", [0], 50 * S, 51 * S)
    assert due(waiting, 60, 61) == []


def test_an_event_of_the_future_is_tried_when_its_time_has_come() -> None:
    """Error 6: it is neither dropped nor counted."""
    waiting = index()
    waiting.add("f", file_of(events(b"aaaa"), 50, again_s=70), [0], read_past_ns=60 * S, now_ns=50 * S)
    assert due(waiting, 60, 69) == []
    assert due(waiting, 60, 70) == [Rest("f", [0])]


def test_settled_rows_leave_and_a_file_without_rows_too() -> None:
    waiting = index()
    waiting.add("f", file_of(events(b"aaaa", b"bbbb", b"cccc"), 50), [0, 1, 2], 60 * S, 60 * S)
    waiting.retain("f", [0, 2])
    assert (waiting.open_rows("f"), len(waiting)) == ([0, 2], 2)
    waiting.tried("f", [2], 150 * S, 150 * S)
    assert due(waiting, 150, 150) == [Rest("f", [0])]
    waiting.retain("f", [])
    assert waiting.files == {}


def test_a_miss_is_final_only_once_both_clocks_have_passed_the_end_of_patience() -> None:
    first, times = np.array([0, 40 * S]), np.zeros(2, np.int64)
    assert as_of(PATIENCE, first, times, 100 * S).tolist() == [100 * S, WAIT_NS]
    assert as_of(Patience(), first, times, 10**6 * S).tolist() == [WAIT_NS] * 2
