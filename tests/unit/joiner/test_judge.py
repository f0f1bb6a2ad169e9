"""The judge with an adapter that joins many at once, raises, or does not return."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    Filtered,
    ForeignHeader,
    Joined,
    LogFile,
    Pairs,
    Payloads,
)
from photon.batch.columns import split_digests
from photon.batch.events import Events, ForeignEvent
from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryPlace, PrimaryRecord
from photon.idregistry.api import Kind
from photon.joiner.api import UNKNOWN_REASON, WAIT_NS, Outcome
from photon.joiner.verdicts import HUNG_TIMES, Decided, Judge

FILE = LogFile("a.log")


class Alone(Adapter):
    """Joins as the foreign record says: ok, filter, bad, raise, odd, newline, hang."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(b"k", 0)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        if record == b"bad":
            raise BadRecord("no key")
        return record

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return None

    primary_payload = foreign_payload

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        if foreign == b"filter":
            return Filtered("a bot")
        if foreign == b"bad":
            raise BadRecord("cannot be")
        if foreign == b"raise":
            raise KeyError("boom")
        if foreign == b"odd":
            return 17  # type: ignore[return-value]
        if foreign == b"newline":
            return Joined(b"{}\n", b"{}")
        while foreign == b"hang":
            pass
        return Joined(b'"%b"' % foreign, b'"%b"' % primary)


class Together(Alone):
    """The same, many at once; what ``join`` raises, it raises."""

    calls = 0

    def join_columns(self, pairs: Pairs) -> Payloads:
        type(self).calls += 1
        return super().join_columns(pairs)


class Short(Alone):
    """Gives too few answers."""

    def join_columns(self, pairs: Pairs) -> Payloads:
        return Payloads.of(super().join_columns(pairs).rows()[1:])


class Shifted(Together):
    """Gives each pair the payloads of the next one."""

    def join_columns(self, pairs: Pairs) -> Payloads:
        rows = super().join_columns(pairs).rows()
        return Payloads.of(rows[1:] + rows[:1])


class Counting(Alone):
    """Gives a different answer each time."""

    calls = 0

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        self.calls += 1
        return Joined(b"%d" % self.calls, primary)


class Overridden(Together):
    """Knows more than its base class's batch method."""

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        return Filtered("all")


def decided(adapter: Adapter, records: Sequence[bytes], keys: Sequence[bytes] | None = None) -> Decided:
    return Judge(adapter, check_payloads=True).decide(events_of(records), found_of(records, keys), frozenset())


def events_of(records: Sequence[bytes]) -> Events:
    rows = [
        ForeignEvent(b"e%d" % at, at.to_bytes(16, "big"), 0, b"k", record, FILE, at, WAIT_NS)
        for at, record in enumerate(records)
    ]
    return Events.of(rows)


def found_of(records: Sequence[bytes], keys: Sequence[bytes] | None = None) -> EventLookUps:
    primaries = keys or [b"k"] * len(records)
    return EventLookUps.of([LookUpCode.FOUND] * len(records), [PrimaryRecord(key, FILE, 0) for key in primaries])


def undone(found: Decided) -> dict[int, Kind]:
    """Row -> kind."""
    return {row: Kind(found.kinds[row]) for row in found.undone}


def verdicts(found: Decided) -> list[tuple[int, object]]:
    """By row: the written line, or the kind and reason."""
    rows: list[tuple[int, object]] = list(
        zip(found.joined().tolist(), zip(found.foreign, found.primary, strict=True), strict=True)
    )
    rows += [(row, (kind, found.reasons[row].partition(" (")[0])) for row, kind in undone(found).items()]
    return sorted(rows, key=lambda each: each[0])


@given(
    records=st.lists(st.sampled_from([b"ok", b"filter", b"bad", b"raise", b"odd", b"newline"]), max_size=30),
    keys=st.data(),
)
def test_many_at_once_give_what_each_alone_gives(records: list[bytes], keys: st.DataObject) -> None:
    named = keys.draw(
        st.lists(st.sampled_from([b"k", b"other", b"bad"]), min_size=len(records), max_size=len(records))
    )
    alone = decided(Alone({}), records, named)
    together = decided(Together({}), records, named)
    assert verdicts(alone) == verdicts(together) == verdicts(decided(Short({}), records, named))
    assert alone.mismatched == together.mismatched == [at for at, key in enumerate(named) if key != b"k"]


def test_a_batch_that_raises_costs_only_the_event_to_blame() -> None:
    Together.calls = 0
    found = decided(Together({}), [b"ok", b"raise", b"ok"])
    assert Together.calls == 1
    assert found.joined().tolist() == [0, 2]
    assert undone(found) == {1: Kind.REJECTED}
    assert found.reasons[1].startswith("the adapter raised KeyError: 'boom' (")
    assert "test_judge.py:" in found.reasons[1]


def test_columns_that_differ_from_pairs_alone_are_refused() -> None:
    with pytest.raises(
        AdapterError, match=r"^Shifted: join_columns gave Joined\(.*\) for a record of .*, and Joined\("
    ):
        decided(Shifted({}), [b"a", b"b"])


def test_a_join_that_gives_another_answer_each_time_is_refused() -> None:
    with pytest.raises(
        AdapterError, match=r"^Counting: join gave Joined\(.*'1'.*\) for a record of .*, and Joined\("
    ):
        decided(Counting({}), [b"a", b"b"])


def test_what_is_overridden_is_not_asked_of_an_inherited_batch() -> None:
    assert Together({}).defines("join_columns")
    assert not Overridden({}).defines("join_columns")
    assert undone(decided(Overridden({}), [b"ok"])) == {0: Kind.FILTERED}


@pytest.mark.parametrize("cls", [Alone, Together])
def test_an_event_that_hangs_is_retried_and_then_rejected(cls: type[Adapter]) -> None:
    adapter = cls({})
    adapter.time_limit_s = 0.1
    judge = Judge(adapter, check_payloads=True)
    records = [b"ok", b"hang", b"ok"]
    for time in range(1, HUNG_TIMES):
        found = judge.decide(events_of(records), found_of(records), frozenset())
        assert (found.joined().tolist(), undone(found)) == ([0, 2], {})
        assert found.outcomes[1] == Outcome.RETRY
        assert found.reasons[1].endswith(f"time {time} of {HUNG_TIMES}")
    found = judge.decide(events_of(records), found_of(records), frozenset())
    assert (found.joined().tolist(), undone(found)) == ([0, 2], {1: Kind.REJECTED})
    assert found.reasons[1].startswith("the adapter did not return within 0.1 s (")
    assert "test_judge.py:" in found.reasons[1]


def test_beside_one_that_is_being_registered_the_others_are_joined_with_their_own_primaries() -> None:
    events = events_of([b"ok"] * 3)
    found = EventLookUps.of([LookUpCode.FOUND] * 3, [PrimaryRecord(b"k", LogFile(name), 0) for name in "abc"])
    seen: list[str] = []

    class Seeing(Alone):
        def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined:
            seen.append(primary_file.path)
            return Joined(b"{}", b"{}")

    made = Judge(Seeing({}), check_payloads=True).decide(events, found, {split_digests(events.digests)[1]})
    assert (made.joined().tolist(), seen[:2], made.reasons) == ([0, 2], ["a", "c"], {1: UNKNOWN_REASON})


@pytest.mark.parametrize("rule", ["first", "last", "reject"])
def test_of_a_key_that_several_primaries_share_the_event_is_joined_or_rejected(rule: str) -> None:
    """The bad record is rejected on its own account; the third event's key is its own."""
    adapter = Alone({})
    adapter.primary_duplicates = rule
    found = found_of([b"ok", b"bad", b"ok"])
    ambiguous = dict.fromkeys((0, 1), PrimaryPlace(LogFile("other.log"), 7))
    made = Judge(adapter, check_payloads=True).decide(
        events_of([b"ok", b"bad", b"ok"]), EventLookUps(found.codes, found.found, ambiguous), frozenset()
    )
    assert made.ambiguous == [0, 1]
    assert made.joined().tolist() == ([2] if rule == "reject" else [0, 2])
    assert sorted(made.undone) == ([0, 1] if rule == "reject" else [1])
    assert set(undone(made).values()) == {Kind.REJECTED}
    if rule == "reject":
        place = f"'k' is in {FILE.path}, offset 0, and with other content in other.log, offset 7"
        assert made.reasons[0] == f"several primary events have its key: {place}"


class Bounded(Alone):
    """Its primary records carry their time."""

    def primary_time(self, record: bytes, file: LogFile) -> int:
        if record == b"bad":
            raise BadRecord("no time")
        return 0 if record == b"k" else -100

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return b"k"


def test_an_event_out_of_bounds_is_unmatched_for_good_beside_its_primary() -> None:
    adapter = bounded_adapter(Bounded({}), Bounds(10, 10), "x")
    primaries = [PrimaryRecord(record, FILE, 0) for record in (b"k", b"early", b"bad")]
    answers = EventLookUps.of([LookUpCode.FOUND] * 3, primaries)
    judge = Judge(adapter, check_payloads=True)
    made = judge.decide(events_of([b"ok", b"ok", b"ok"]), answers, frozenset())
    assert (made.joined().tolist(), undone(made)) == ([0], {1: Kind.UNMATCHED, 2: Kind.REJECTED})
    assert (made.unpaired, made.undone[1]) == ([1], primaries[1])
    assert made.reasons[1].startswith("the primary event is ")
    assert made.reasons[2] == "the primary event: no time"
