"""Verification of events with several primary events: the fresh join gives the joiner's sets; defects are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import Matching
from photon.eventstore.api import SET_MAX
from photon.idregistry.api import Kind
from photon.joiner.matching import ESCAPED_BYTES
from photon.spark.classes import Class
from photon.spark.output_lines import NoRecord, read_output_line
from photon.spark.verify.classify import ClassifiedId, Entry, JoinedPair, KnownOfId, Line, Record, classify
from photon.spark.verify.findings import known_of
from photon.spark.verify.fresh import ExpectedLine, FreshJoin
from photon.spark.verify.narrow_rows import LINE, NARROW, RECORD, hash64
from tests.unit.joiner.test_matching import ORDER_AT, Payments, decide

KINDS = {Kind.JOINED: "joined", Kind.FILTERED: "filtered", Kind.UNMATCHED: "unmatched", Kind.REJECTED: "rejected"}
MATCHINGS = [Matching("all"), Matching("all", 10, 5), Matching("latest"), Matching("latest", 10, 0)]
WORDS = ("a", "b", "filtered", "bad", "apart")


def fresh(matching: Matching, records: Sequence[bytes]) -> ExpectedLine:
    adapter = Payments({})
    adapter.matching = matching
    primaries = [
        {"p_log": "payments.log", "p_name": "payments.log", "p_offset": at, "p_header": None, "p_record": record}
        for at, record in enumerate(records)
    ]
    row = {"record": b"f", "log": "orders.log", "header": None, "unreadable": None, "event_time_ns": ORDER_AT,
           "event_id": b"e0", "key": b"k"}  # fmt: skip
    return FreshJoin(adapter).expected(row | {"primaries": primaries or None})


@given(
    st.sampled_from(MATCHINGS),
    st.lists(st.tuples(st.integers(85, 110), st.sampled_from(WORDS)), max_size=6),
    st.booleans(),
    st.integers(0, 120),
)
def test_a_fresh_join_gives_what_the_joiner_gives(
    matching: Matching, some: list[tuple[int, str]], untimed: bool, bytes_max: int
) -> None:
    """``bytes_max``: of an event's records together."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("photon.joiner.verdicts", "photon.spark.verify.fresh"):
            patch.setattr(f"{module}.PAIRS_BYTES_MAX", bytes_max)
        the_same_is_given(matching, some, untimed)


def the_same_is_given(matching: Matching, some: list[tuple[int, str]], untimed: bool) -> None:
    records = [f"k {time} {word}".encode() for time, word in some]
    if untimed:
        records.insert(len(records) // 2, b"k when")
    _, decided = decide(matching, records)
    found = fresh(matching, records)
    assert found.kind == KINDS[Kind(decided.kinds[0])]
    if found.kind == "joined":
        places = decided.primaries.offsets.tolist()
        payloads = [hash64(each or b"") for each in decided.primary]
        if matching.match == "all":
            assert found.pairs == [
                JoinedPair(hash64(b'"f"'), payload, "payments.log", place)
                for payload, place in zip(payloads, places, strict=True)
            ]
        else:
            assert (found.pairs, found.primary, found.primary_offset) == (None, payloads[0], places[0])
    else:
        primary = decided.undone[0]
        assert found.primary_offset == (None if primary is None else primary.offset)


def test_too_many_are_rejected() -> None:
    assert fresh(Matching("all"), [b"k 1"] * SET_MAX).kind == "joined"
    assert fresh(Matching("all"), [b"k 1"] * (SET_MAX + 1)) == ExpectedLine("rejected", record=hash64(b"f"))


def test_a_set_whose_records_would_be_too_long_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [b"k 1", b"k 2 filtered"]
    size = len(b'"f""k 1"') + len(b"fk 2 filtered") + 2 * ESCAPED_BYTES * len(b"e0k")
    monkeypatch.setattr("photon.spark.verify.fresh.PAIRS_BYTES_MAX", size)
    assert fresh(Matching("all"), records).kind == "joined"
    monkeypatch.setattr("photon.spark.verify.fresh.PAIRS_BYTES_MAX", size - 1)
    assert fresh(Matching("all"), records) == ExpectedLine(
        "rejected", record=hash64(b"f"), primary_log="payments.log", primary_offset=0
    )
    assert fresh(Matching("latest"), records).kind == "filtered"


# -- defects -----------------------------------------------------------------------------------------------------
TOKEN = "0000010000000001"
PAIRS = [JoinedPair(1, 10 + at, "q.log", 20 + at) for at in range(3)]
SET = Line("east", "a.log", 10, 1000, b"7", "joined", None, 2, None, None, None, pairs=PAIRS)
ENTRY = Entry(TOKEN, "cleared", "joined", 1000, "east", "e", False)
WRITTEN = [
    Record("east", "joined", "joined/e-000001.jsonl", at, TOKEN, 1000, b"7", each.foreign, each.primary, "a.log", 10,
           each.primary_log, each.primary_offset, pair=at + 1, pairs=3)
    for at, each in enumerate(PAIRS)
]  # fmt: skip
NAMES = [column.split()[0] for column in NARROW.split(", ")]


def row(role: int, **said: object) -> dict[str, object]:
    return dict.fromkeys(NAMES) | {"role": role, "judged": True} | said


def known(records: Sequence[Record], line: Line = SET, entry: Entry = ENTRY) -> KnownOfId:
    """By way of the executors' rows."""
    rows = [
        row(LINE, datacentre=line.datacentre, kind=line.kind, log=line.log, offset=line.offset, key=line.key,
            event_time_ns=line.time_ns, record=line.record,
            members=None if line.pairs is None else [each._asdict() for each in line.pairs])
    ]  # fmt: skip
    rows += (
        row(RECORD, datacentre=each.datacentre, kind=each.kind, file=each.file, file_offset=each.offset,
            token=each.token, event_time_ns=each.time_ns, key=each.key, foreign=each.foreign, primary=each.primary,
            log=each.log, offset=each.log_offset, primary_log=each.primary_log, primary_offset=each.primary_offset,
            pair=each.pair, pairs=each.pairs)
        for each in records
    )  # fmt: skip
    return replace(known_of(rows, 1, len(records), True, None), entries=[entry])


def only(records: Sequence[Record], line: Line = SET, entry: Entry = ENTRY) -> ClassifiedId:
    (found,) = classify(known(records, line, entry))
    return found


def test_a_whole_set_is_one_record() -> None:
    assert only(WRITTEN).kind is Class.CORRECT
    assert only(WRITTEN[::-1]).kind is Class.CORRECT
    assert known(WRITTEN).records_all == 1


@pytest.mark.parametrize("at", range(3))
def test_half_a_set(at: int) -> None:
    found = only(WRITTEN[:at] + WRITTEN[at + 1 :])
    assert (found.kind, found.evidence["fields"]) == (Class.WRONGLY_JOINED, ["pairs"])
    assert (found.evidence["half"], found.evidence["missing"]) == (True, [f"q.log:{20 + at}"])


def test_no_set_at_all_is_lost_as_its_entry_says() -> None:
    assert only([]).kind is Class.LOST_CLEARED
    assert only([], entry=replace(ENTRY, state="owned", retired=True)).kind is Class.LOST_RETIRED


def test_a_set_that_lacks_a_pair_and_says_that_it_is_whole() -> None:
    found = only([replace(each, pairs=2) for each in WRITTEN[:2]])
    assert (found.kind, found.evidence["fields"]) == (Class.WRONGLY_JOINED, ["pairs"])
    assert (found.evidence["half"], found.evidence["missing"], found.evidence["extra"]) == (False, ["q.log:22"], [])


def test_a_pair_that_should_not_be_there() -> None:
    more = [replace(each, pairs=4) for each in WRITTEN]
    found = only([*more, replace(more[0], offset=9, pair=4, primary_offset=99)])
    assert (found.kind, found.evidence["fields"], found.evidence["extra"]) == (
        Class.WRONGLY_JOINED, ["pairs"], ["q.log:99"],
    )  # fmt: skip
    none = replace(SET, kind="unmatched", pairs=None)
    assert only(WRITTEN, none).kind is Class.SHOULD_BE_UNMATCHED


def test_a_doubled_pair_and_a_doubled_set() -> None:
    found = only([*WRITTEN, replace(WRITTEN[1], offset=9)])
    assert (found.kind, found.record and found.record.offset) == (Class.DUPLICATED, 9)
    assert found.evidence["pairs"] == [f"east/joined/e-000001.jsonl:9 {TOKEN}"]
    again = [replace(each, offset=each.offset + 50, token="0000010000000009") for each in WRITTEN]
    assert only([*WRITTEN, *again]).kind is Class.DUPLICATED
    assert only([*again, *WRITTEN]).kind is Class.DUPLICATED
    alone = {"pair": None, "pairs": None, "primary": None, "primary_log": None, "primary_offset": None}
    unmatched = replace(WRITTEN[0], kind="unmatched", token="07", foreign=2, **alone)  # type: ignore[arg-type]
    kinds = [found.kind for found in classify(known([*WRITTEN, unmatched]))]
    assert kinds == [Class.DUPLICATED, Class.PRIMARY_EXISTS]


def test_pairs_with_rolled_logs_of_one_name_may_share_a_place() -> None:
    """Nobody doubts them where ids are compared at once; here something else about the id was in doubt."""
    alike = [each._replace(primary_offset=20) for each in PAIRS]
    line, records = replace(SET, pairs=alike), [replace(each, primary_offset=20) for each in WRITTEN]
    assert only(records, line).kind is Class.CORRECT
    found = only(records[:2], line)
    assert (found.kind, found.evidence["missing"]) == (Class.WRONGLY_JOINED, ["q.log:20"])
    assert found.evidence["half"] is True
    assert only([*records[:2], replace(records[2], primary=0)], line).evidence["fields"] == ["primary"]
    assert only([*records, replace(records[1], offset=9)], line).kind is Class.DUPLICATED
    assert only(records).evidence["extra"] == ["q.log:20"]


def test_a_set_of_each_datacentre() -> None:
    west = [replace(each, datacentre="west") for each in WRITTEN]
    both = replace(known([*WRITTEN, *west]), lines=[SET, replace(SET, datacentre="west")])
    (found,) = classify(both)
    assert (found.kind, found.evidence["count"]) == (Class.DUPLICATED_ACROSS, 2)


def test_another_primary_payload_and_order() -> None:
    wrong = replace(WRITTEN[1], primary=0)
    assert only([WRITTEN[0], wrong, WRITTEN[2]]).evidence["fields"] == ["primary"]
    assert only([WRITTEN[0], replace(WRITTEN[1], key=b"8"), WRITTEN[2]]).evidence["fields"] == ["key"]
    assert only([WRITTEN[0], replace(WRITTEN[1], log_offset=1), WRITTEN[2]]).evidence["fields"] == ["source"]
    swapped = [replace(WRITTEN[0], pair=2), replace(WRITTEN[1], pair=1), WRITTEN[2]]
    found = only(swapped)
    assert (found.evidence["fields"], found.evidence["missing"], found.evidence["half"]) == (["pairs"], [], False)


def test_a_set_in_place_of_one_record_and_the_other_way_round() -> None:
    one = replace(SET, pairs=None, foreign=1, primary=10, primary_log="q.log", primary_offset=20)
    assert only([replace(WRITTEN[0], pairs=1)], one).evidence["fields"] == ["pairs"]
    assert "pairs" in only([replace(WRITTEN[0], pair=None, pairs=None)]).evidence["fields"]  # type: ignore[operator]


def test_each_pair_is_of_the_entrys_token() -> None:
    found = only([*WRITTEN[:2], replace(WRITTEN[2], token="00000000000000ff")])
    assert (found.kind, found.evidence["fields"]) == (Class.REGISTRY_DIFFERS, ["token"])


def test_pairs_that_cannot_be_are_torn() -> None:
    line = (b'{"event_id":"e","key":"k","event_time_ns":1,"foreign":1,"primary":1,"source":{"file":"f","offset":0},'
            b'"primary_source":{"file":"p","offset":0}%b,"token":"0000000000000001"}')  # fmt: skip
    read = read_output_line(line % b',"pair":2,"pairs":3', "joined")
    assert (read.pair, read.pairs) == (2, 3)
    for bad in (
        b'"pair":4,"pairs":3',
        b'"pair":0,"pairs":3',
        b'"pairs":3',
        b'"pair":1',
        b'"pair":1,"pairs":4000000000',
    ):
        with pytest.raises(NoRecord, match="is pair"):
            read_output_line(line % (b"," + bad), "joined")
