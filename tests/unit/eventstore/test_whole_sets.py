"""All records of a key: not before they are final, never a part of them, and so on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from photon.adapters.contract import BadRecord, LogFile, Matching
from photon.adapters.logs.identity import log_name
from photon.eventstore import columns
from photon.eventstore.api import SET_MAX, EventLookUps, LookUpCode
from photon.eventstore.tiered import NOTHING_READ_NS
from photon.eventstore.whole_sets import WholeSets
from tests.unit.eventstore.helpers import Filled, LineAdapter, Store

FOUND, NOT_YET, ABSENT = LookUpCode.FOUND, LookUpCode.NOT_YET, LookUpCode.ABSENT


def whole(store: Store, given_up: frozenset[str] = frozenset()) -> WholeSets:
    store.map._settings = replace(store.map._settings, places_max=SET_MAX + 1)
    return WholeSets(
        store.cache, store.map, store.reads, log_name, lambda: store.reader.read_past_ns, lambda: given_up
    )


class Rates(LineAdapter):
    """Records ``key,time``."""

    matching = Matching("latest")

    def primary_time(self, record: bytes, file: LogFile) -> int:
        try:
            return int(record.partition(b",")[2])
        except ValueError:
            raise BadRecord("no time") from None


def sets_of(found: EventLookUps) -> list[tuple[LookUpCode, list[bytes]]]:
    records, counts = iter(found.found.records), iter(found.per_row().tolist())
    return [(code, [next(records) for _ in range(next(counts))] if code is FOUND else []) for code in found.answers]


@pytest.mark.parametrize("cache_bytes", [1 << 20, 1])
def test_all_records_of_each_key_in_file_order(filled: Filled, cache_bytes: int) -> None:
    store = filled({"b.log": b"k,3\nx,1\nk,3\n", "a.log": b"k,1\nbad\nk,2\n"}, cache_bytes=cache_bytes)
    found = whole(store).look_up([b"k", b"none", b"x"], [0, 0, 0])
    assert sets_of(found) == [(FOUND, [b"k,1", b"k,2", b"k,3", b"k,3"]), (ABSENT, []), (FOUND, [b"x,1"])]
    assert columns.answered(columns.reply(found), 3).counts is not None


def test_nothing_is_said_before_the_set_is_final(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\n"})
    past = store.reader.read_past_ns
    found = whole(store).look_up([b"k", b"k", b"k"], [past, past + 1, NOTHING_READ_NS])
    assert sets_of(found) == [(FOUND, [b"k,1"]), (NOT_YET, []), (NOT_YET, [])]


def test_a_set_that_cannot_be_read_as_a_whole_is_no_set(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\ny,1\n", "b.log": b"k,2\nx,1\n"}, cache_bytes=1)
    gone = next(log.identity for log in store.map.logs() if log.file.path == "b.log")
    (store.logs / "b.log").unlink()
    store.follower.scan()
    found = whole(store).look_up([b"k", b"y"], [0, 0])
    assert sets_of(found) == [(LookUpCode.UNAVAILABLE, []), (FOUND, [b"y,1"])]
    known = whole(store)
    known.gone = lambda: {gone}
    assert sets_of(known.look_up([b"k", b"y"], [0, 0])) == [(LookUpCode.GONE, []), (FOUND, [b"y,1"])]
    assert sets_of(whole(store, frozenset({gone})).look_up([b"k"], [0])) == [(FOUND, [b"k,1"])]


@pytest.mark.parametrize("cache_bytes", [1 << 20, 1])
def test_of_many_versions_only_the_newest_as_of_a_time_is_read(filled: Filled, cache_bytes: int) -> None:
    log = b"".join(b"EUR,%d\nGBP,%d\n" % (5 * n, 5 * n) for n in range(3 * SET_MAX))
    store = filled({"a.log": log}, adapter=Rates({}), cache_bytes=cache_bytes)
    asked = [(b"EUR", 5003), (b"GBP", 5000), (b"EUR", -1), (b"no", 1), (b"GBP", 10**9)]
    keys, times = [key for key, _ in asked], [time for _, time in asked]
    (newer, *_), *others = [
        records for _, records in sets_of(whole(store).look_up([b"EUR", *keys], [0] * 6, [-1, *times]))
    ]
    assert newer.startswith(b"EUR,"), "some record, so the reason can say that none is as early"
    assert others == [[b"EUR,5000"], [b"GBP,5000"], [newer], [], [b"GBP,%d" % (15 * SET_MAX - 5)]]


def test_a_version_without_a_time_comes_with_each(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\nk,when\nk,9\n"}, adapter=Rates({}))
    assert sets_of(whole(store).look_up([b"k"], [0], [5])) == [(FOUND, [b"k,1", b"k,when"])]


def test_older_versions_count_where_a_log_is_given_up(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\n", "b.log": b"k,2\nl,2\n"}, adapter=Rates({}))
    gone = next(log.identity for log in store.map.logs() if log.file.path == "b.log")
    found = whole(store, frozenset({gone})).look_up([b"k", b"l"], [0, 0], [5, 5])
    assert sets_of(found) == [(FOUND, [b"k,1"]), (ABSENT, [])]


def test_a_version_that_is_not_where_the_map_says_is_not_passed_over(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\nk,2\n"}, adapter=Rates({}), cache_bytes=1)
    (store.logs / "a.log").write_bytes(b"k,1\nx,2\n")
    found = whole(store).look_up([b"k", b"k"], [0, 0], [1, 5])
    assert found.answers == [FOUND, LookUpCode.UNAVAILABLE]


def test_a_key_with_too_many_says_so(filled: Filled) -> None:
    store = filled({"a.log": b"".join(b"k,%d\n" % n for n in range(SET_MAX + 1)) + b"m,\n" * SET_MAX})
    found = whole(store).look_up([b"k", b"m"], [0, 0])
    assert found.answers == [LookUpCode.TOO_MANY, FOUND]
    assert found.per_row().tolist() == [SET_MAX]


def test_a_reply_that_is_too_large_ends_between_two_sets(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\nk,2\nl,1\nm,1\nm,2\n"})
    found = whole(store).look_up([b"k", b"no", b"l", b"m"], [0] * 4)
    part = columns.answered(columns.reply(found, bytes_max=8), 4)
    assert sets_of(part) == [(FOUND, [b"k,1", b"k,2"]), (ABSENT, [])]
    rest = columns.answered(columns.reply(whole(store).look_up([b"l", b"m"], [0, 0]), bytes_max=100), 2)
    assert sets_of(EventLookUps.concat([part, rest])) == sets_of(found)
