"""The primaries with which an event is joined if its key has several, and the effect of a bad one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import Adapter, BadRecord, Filtered, ForeignHeader, Joined, LogFile, Matching, Unpaired
from photon.adapters.envelope import Envelope
from photon.adapters.envelope_reader import lacking_pairs, pair_of, read_block
from photon.adapters.key_lists import list_of_keys
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records
from photon.eventstore.api import EventLookUps, LookUpCode
from photon.idregistry.api import Kind
from photon.joiner.api import WAIT_NS, Outcome
from photon.joiner.matching import (
    NONE_BEFORE_REASON,
    NONE_WITHIN_REASON,
    OTHER_MATCH_REASON,
    TOO_LONG_REASON,
    TOO_MANY_REASON,
    of_events,
    question,
)
from photon.joiner.verdicts import Decided, Judge, envelope_lines

FILE = LogFile("payments.log")
ORDER_AT = 100


class Payments(Adapter):
    """Primaries are ``key time word``; the word decides the fate of the pair."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(b"k", ORDER_AT)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        if record.endswith(b"stuck"):
            raise RuntimeError("cannot now")
        return record.split()[0]

    def primary_time(self, record: bytes, file: LogFile) -> int:
        try:
            return int(record.split()[1])
        except ValueError:
            raise BadRecord("no time") from None

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    primary_payload = foreign_payload

    def join(
        self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile
    ) -> Joined | Filtered | Unpaired:
        if primary.endswith(b"filtered"):
            return Filtered("too small")
        if primary.endswith(b"bad"):
            raise BadRecord("no sum")
        if primary.endswith(b"apart"):
            return Unpaired("another day")
        return super().join(foreign, foreign_file, primary, primary_file)


def decide(
    matching: Matching, *sets: Sequence[bytes] | LookUpCode, as_of: int = 0, ids: Sequence[bytes] | None = None
) -> tuple[Events, Decided]:
    """An event for each set; an empty one is ABSENT."""
    adapter = Payments({})
    adapter.matching = matching
    names = ids or [b"e%d" % at for at in range(len(sets))]
    events = Events.of(
        ForeignEvent(name, name.ljust(16), ORDER_AT, b"k", b"f", LogFile("orders.log"), at, as_of)
        for at, name in enumerate(names)
    )
    codes = [
        each if isinstance(each, LookUpCode) else LookUpCode.FOUND if each else LookUpCode.ABSENT for each in sets
    ]
    found = [each for each in sets if not isinstance(each, LookUpCode) and each]
    records = Records.of([PrimaryRecord(record, FILE, at) for each in found for at, record in enumerate(each)])
    counts = np.array(list(map(len, found)), np.uint32)
    look_ups = EventLookUps(bytes(codes), records, {}, counts)
    return events, Judge(adapter, check_payloads=True).decide(events, look_ups, frozenset())


def joined(matching: Matching, *records: bytes) -> list[bytes | None]:
    _, decided = decide(matching, records)
    return list(decided.primary)


ALL, LATEST = Matching("all"), Matching("latest")


def test_all_of_a_key_in_their_order_and_what_has_another_key_is_left_out() -> None:
    assert joined(ALL, b"k 9 a", b"x 1 b", b"k 200 c", b"k 9 a") == [b'"k 9 a"', b'"k 200 c"', b'"k 9 a"']


def test_bounds_count_from_the_events_time_and_belong_to_the_window() -> None:
    within = Matching("all", before_ns=10, after_ns=5)
    times = (89, 90, 100, 105, 106)
    assert joined(within, *(b"k %d" % at for at in times)) == [b'"k 90"', b'"k 100"', b'"k 105"']
    _, decided = decide(within, [b"k 89", b"k 106"])
    assert (decided.kinds[0], decided.reasons[0]) == (Kind.UNMATCHED, NONE_WITHIN_REASON)


@given(st.lists(st.integers(80, 120), min_size=1, max_size=8), st.sampled_from([None, 0, 5, 30]))
def test_the_latest_is_the_last_of_those_not_after_it(times: list[int], before: int | None) -> None:
    matching = Matching("latest", before, None if before is None else 0)
    records = [b"k %d %d" % (time, at) for at, time in enumerate(times)]
    _, decided = decide(matching, records)
    right = [(time, at) for at, time in enumerate(times) if time <= 100 and (before is None or time >= 100 - before)]
    if right:
        assert decided.primary == [b'"k %d %d"' % max(right)]
        assert decided.pairs is None
    else:
        assert decided.kinds[0] == Kind.UNMATCHED
        assert decided.reasons[0] == (NONE_BEFORE_REASON if before is None else NONE_WITHIN_REASON)


@pytest.mark.parametrize("matching", [ALL, LATEST])
def test_a_set_that_is_not_final_decides_nothing(matching: Matching) -> None:
    _, decided = decide(matching, [b"k 1"], LookUpCode.NOT_YET, as_of=WAIT_NS)
    assert list(decided.outcomes) == [Outcome.NOT_YET, Outcome.NOT_YET]
    assert not any(decided.kinds)


def test_too_many_are_rejected_and_said_so() -> None:
    _, decided = decide(ALL, LookUpCode.TOO_MANY)
    assert (decided.kinds[0], decided.reasons[0]) == (Kind.REJECTED, TOO_MANY_REASON)


def test_what_is_filtered_is_left_out_unless_it_is_all_there_is() -> None:
    _, decided = decide(ALL, [b"k 1 filtered", b"k 2"], [b"k 3 filtered", b"k 4 filtered"])
    assert (list(decided.kinds), decided.pairs) == ([Kind.JOINED, Kind.FILTERED], [1])
    assert decided.reasons == {1: "too small"}


def test_one_pair_that_cannot_be_joined_rejects_its_event_alone() -> None:
    _, decided = decide(ALL, [b"k 1", b"k 2 filtered", b"k 3 bad"], [b"k 4", b"k 5"])
    assert (list(decided.kinds), decided.pairs) == ([Kind.REJECTED, Kind.JOINED], [2])
    assert "no sum" in decided.reasons[0]


def test_a_primary_whose_time_cannot_be_read_rejects_the_event() -> None:
    _, decided = decide(LATEST, [b"k 1", b"k when"])
    primary = decided.undone[0]
    assert (decided.kinds[0], primary is not None and primary.record) == (Kind.REJECTED, b"k when")
    assert "no time" in decided.reasons[0]


def test_the_second_line_of_an_id_waits_for_the_first() -> None:
    _, decided = decide(ALL, [b"k 1", b"k 2"], [b"k 1"], ids=[b"e", b"e"])
    assert (list(decided.kinds), decided.pairs, decided.repeats) == ([Kind.JOINED, 0], [2], {1: 0})


def test_a_row_has_the_lines_of_all_pairs_and_is_read_as_one_event() -> None:
    events, decided = decide(ALL, [b"k 1", b"k 2", b"k 3"], [], [b"k 4"])
    lines = envelope_lines(Envelope())(events, decided, 7, 0)
    assert [line.count(b"\n") for line in lines] == [3, 1, 1]
    several = lines[0].splitlines(keepends=True)
    assert [pair_of(line) for line in several] == [(1, 3), (2, 3), (3, 3)]
    assert pair_of(lines[1]) is None
    assert [orjson.loads(line)["primary"] for line in several] == ["k 1", "k 2", "k 3"]
    block = b"".join(lines)
    refs = read_block(block, parse=True)
    assert (refs.event_ids, refs.tokens) == ([b"e0", b"e1", b"e2"], [7, 7, 7])
    assert lacking_pairs(block) is None
    assert lacking_pairs(b"".join(several[:2])) == 0
    assert lacking_pairs(lines[2] + several[0]) == len(lines[2])
    assert lacking_pairs(several[1]) == -1


def test_a_member_of_a_payload_that_is_called_pair_says_nothing() -> None:
    payload = b'{"a":1,"pair":1,"pairs":2}'
    line = b'{"event_id":"e","key":"k","event_time_ns":1,"foreign":%b,"primary":%b,"source":{"file":"f","offset":0},'
    line += b'"primary_source":{"file":"p","offset":0},"token":"%016x"}\n'
    line %= (payload, payload, 7)
    assert pair_of(line) is None
    assert read_block(line).event_ids == [b"e"]


def test_pairs_that_are_none_are_left_out_and_an_event_with_no_other_is_unmatched() -> None:
    assert joined(ALL, b"k 1 a", b"k 2 apart", b"k 3 c") == [b'"k 1 a"', b'"k 3 c"']
    _, decided = decide(ALL, [b"k 1 apart", b"k 2 apart"])
    assert (decided.kinds[0], decided.reasons[0], decided.unpaired) == (Kind.UNMATCHED, "another day", [0])


def test_a_record_whose_key_nobody_can_say_is_not_left_out_of_a_set() -> None:
    for matching in (ALL, LATEST):
        _, decided = decide(matching, [b"k 1 a", b"k 2 stuck", b"k 3 c"])
        assert decided.kinds[0] == Kind.REJECTED
        assert "cannot now" in decided.reasons[0]


def test_an_event_whose_records_are_too_long_together_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.joiner.verdicts.PAIRS_BYTES_MAX", 80)
    _, two = decide(ALL, [b"k 1", b"k 2"])
    _, many = decide(ALL, [b"k %d" % at for at in range(9)], [b"k 1"])
    assert two.kinds == bytes([Kind.JOINED])
    assert many.kinds == bytes([Kind.REJECTED, Kind.JOINED])
    assert many.reasons[0] == TOO_LONG_REASON
    _, escaped = decide(ALL, [b"k 1"], ids=[b"\1" * 12])
    assert escaped.kinds == bytes([Kind.REJECTED])


@pytest.mark.parametrize("of_sets", [True, False])
def test_a_store_with_the_match_of_before_decides_nothing(of_sets: bool) -> None:
    """``match`` was changed, and the store is restarted after the joiner."""
    adapter = Payments({})
    adapter.matching = Matching() if of_sets else ALL
    event = ForeignEvent(b"e", bytes(16), ORDER_AT, b"k", b"f", LogFile("orders.log"), 0, 0)
    two = Records.of([PrimaryRecord(b"k 1", FILE, 0), PrimaryRecord(b"k 2", FILE, 4)][: 1 + of_sets])
    counts = np.array([2], np.uint32) if of_sets else None
    judge = Judge(adapter, check_payloads=True)
    decided = judge.decide(Events.of([event]), EventLookUps(bytes([LookUpCode.FOUND]), two, {}, counts), frozenset())
    assert (list(decided.outcomes), list(decided.kinds)) == ([Outcome.RETRY], [0])
    assert decided.reasons == {0: OTHER_MATCH_REASON}
    if of_sets:
        many = EventLookUps(bytes([LookUpCode.TOO_MANY]), two.take(np.array([], np.intp)))
        assert not any(judge.decide(Events.of([event]), many, frozenset()).kinds)


# -- an event of several keys --------------------------------------------------------------------------------------
# The first that one of an event's keys has is the event's.
CODES = [LookUpCode.NOT_YET, LookUpCode.UNAVAILABLE, LookUpCode.GONE, LookUpCode.TOO_MANY]
# The store's answer for a key: a code, or the number of its primary events.
OF_KEY = st.sampled_from(CODES) | st.integers(0, 3)


def is_code(answer: object) -> bool:
    return isinstance(answer, LookUpCode)


@given(st.lists(st.lists(OF_KEY, min_size=1, max_size=4), max_size=5), st.integers(1, 6))
def test_an_event_has_the_sets_of_all_its_keys_or_waits_for_each(answers: list[list[Any]], most: int) -> None:
    adapter = Payments({})
    adapter.several_keys, adapter.matching = True, ALL
    named = [[b"%d|%d" % (at, number) for number in range(len(of))] for at, of in enumerate(answers)]
    events = Events.of(
        ForeignEvent(b"e%d" % at, b"e%d" % at, 0, list_of_keys(keys), b"f", FILE, at, at)
        for at, keys in enumerate(named)
    )
    asked = question(adapter, events)
    assert list(asked.keys) == [key for keys in named for key in keys]
    assert asked.as_of == [at for at, keys in enumerate(named) for _ in keys]
    each = [one for of in answers for one in of]
    codes = [one if isinstance(one, LookUpCode) else LookUpCode.FOUND if one else LookUpCode.ABSENT for one in each]
    counts = [one for one, code in zip(each, codes, strict=True) if code is LookUpCode.FOUND]
    records = [
        PrimaryRecord(b"%b %d" % (key, n), FILE, n)
        for key, one, code in zip(asked.keys, each, codes, strict=True)
        for n in range(one if code is LookUpCode.FOUND else 0)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("photon.joiner.matching.SET_MAX", most)
        found = of_events(asked, EventLookUps(bytes(codes), Records.of(records), {}, np.array(counts, np.uint32)))
    wanted, its = [], []
    for at, of in enumerate(answers):
        has = [each.record for each in records if each.record.startswith(b"%d|" % at)]
        last = LookUpCode.TOO_MANY if len(has) > most else LookUpCode.FOUND if has else LookUpCode.ABSENT
        wanted.append(next((code for code in CODES if code in filter(is_code, of)), last))
        its += has if wanted[-1] is LookUpCode.FOUND else []
    assert found.answers == wanted
    assert found.found.records == its


def test_pairs_are_in_the_order_of_the_keys_and_a_record_of_another_key_is_none() -> None:
    adapter = Payments({})
    adapter.several_keys, adapter.matching = True, ALL
    key = list_of_keys([b"b", b"a", b"none"])
    events = Events.of([ForeignEvent(b"e", b"e".ljust(16), ORDER_AT, key, b"f", FILE, 0, 0)])
    has = [b"b 1 x", b"b 2 x", b"a 1 x", b"b 1 x", b"c 1 x"]  # the store found one by two keys, one by a wrong key
    records = Records.of([PrimaryRecord(each, FILE, has.index(each)) for each in has])
    found = EventLookUps(bytes([LookUpCode.FOUND, LookUpCode.FOUND, LookUpCode.ABSENT]), records, {},
                         np.array([2, 3], np.uint32))  # fmt: skip
    decided = Judge(adapter, check_payloads=True).decide(
        events, of_events(question(adapter, events), found), frozenset()
    )
    assert decided.primary == [b'"b 1 x"', b'"b 2 x"', b'"a 1 x"']
    assert decided.pairs == [3]
