"""A nightly verification's verdict on one event id."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.configured import ConfiguredAdapter
from photon.spark.classes import Class
from photon.spark.verify.classify import (
    ABSENT_REASONS,
    ClassifiedId,
    Entry,
    KnownLogs,
    KnownOfId,
    Line,
    Record,
    classify,
    differing,
    without_copies,
)
from photon.spark.verify.findings import _datacentre
from photon.spark.verify.fresh import FreshJoin

TOKEN = "0000010000000001"
LINE = Line("east", "a.log", 10, 1000, b"7", "joined", 1, 2, 3, "q.log", 20)
RECORD = Record("east", "joined", "joined/e-000001.jsonl", 0, TOKEN, 1000, b"7", 1, 3, "a.log", 10, "q.log", 20)
ENTRY = Entry(TOKEN, "cleared", "joined", 1000, "east", "e", False)
WEST = replace(LINE, datacentre="west")
ABSENT = replace(LINE, kind="unmatched", primary=None, primary_log=None, primary_offset=None)
UNMATCHED = replace(RECORD, kind="unmatched", foreign=2, primary=None, primary_log=None, primary_offset=None)
LATE = replace(UNMATCHED, kind="late", token=None)
UNREADABLE = Line("east", "a.log", 10, None, None, "unreadable", None, 2, None, None, None)
REJECTED = Record("east", "rejected", "rejected/d.jsonl", 0, None, None, None, 2, None, "a.log", 10, None, None)
RIGHT = KnownOfId([LINE, WEST], [RECORD], [ENTRY])


def only(known: KnownOfId) -> ClassifiedId:
    (finding,) = classify(known)
    return finding


def of(known: KnownOfId) -> list[Class]:
    return [finding.kind for finding in classify(known)]


def test_a_record_that_is_what_a_fresh_join_gives_is_correct() -> None:
    found = only(RIGHT)
    assert (found.kind, found.line, found.record, found.entry) == (Class.CORRECT, LINE, RECORD, ENTRY)
    assert of(KnownOfId([ABSENT], [UNMATCHED], [replace(ENTRY, kind="unmatched")])) == [Class.CORRECT]
    assert of(KnownOfId([LINE], [RECORD], [replace(ENTRY, state="owned", datacentre=None)])) == [Class.CORRECT]


@pytest.mark.parametrize(
    ("state", "retired", "kind"),
    [
        ("owned", False, Class.LOST_OWNED),
        ("owned", True, Class.LOST_RETIRED),
        ("reopened", False, Class.LOST_RETIRED),
        ("cleared", False, Class.LOST_CLEARED),
        ("cleared", True, Class.LOST_CLEARED),
    ],
)
def test_what_the_registry_says_of_a_lost_record(state: str, retired: bool, kind: Class) -> None:
    entry = replace(ENTRY, state=state, retired=retired)
    assert of(KnownOfId([LINE], [], [entry])) == [kind]
    assert of(KnownOfId([], [], [entry])) == [kind], "an id without line or record is lost input"
    if state != "reopened":
        assert of(KnownOfId([LINE], [], [entry], waiting=True)) == [kind], "a retry does not give back what is owned"


def test_what_is_registered_is_lost_where_its_owner_is() -> None:
    late, owner = replace(LATE, datacentre="east"), replace(ENTRY, datacentre="west", slot="w")
    for entry in (owner, replace(owner, state="reopened")):
        for known in (KnownOfId([LINE, WEST], [], [entry]), KnownOfId([LINE, WEST], [late], [entry])):
            found = only(known)
            assert (found.line, found.evidence["owner"], _datacentre(found)) == (WEST, "west", "west")
    unknown = KnownOfId([LINE, WEST], [], [replace(ENTRY, datacentre=None)])
    for known, datacentre in ((KnownOfId([LINE], [], [owner]), "west"), (unknown, "east")):
        assert (only(known).line, _datacentre(only(known))) == (LINE, datacentre)


def test_never_registered() -> None:
    found = only(KnownOfId([LINE, WEST]))
    assert found.kind is Class.LOST_UNREGISTERED
    assert found.evidence == {"expected": "joined", "datacentres": ["east", "west"]}
    assert "boundary" in str(only(KnownOfId([LINE], collected=True)).evidence["why"])


def test_what_waits_or_was_not_read_is_not_judged() -> None:
    assert of(KnownOfId([LINE], waiting=True)) == [Class.PENDING]
    assert of(KnownOfId([LINE], [], [replace(ENTRY, state="reopened")], waiting=True)) == [Class.PENDING]
    unread = replace(LINE, unread=True)
    assert of(KnownOfId([unread, replace(WEST, unread=True)])) == [Class.PENDING]
    assert of(KnownOfId([unread, WEST])) == [Class.LOST_UNREGISTERED], "one datacentre has read it"


def test_late_is_true_only_without_another_record() -> None:
    assert of(KnownOfId([LINE], [LATE])) == [Class.LATE]
    assert of(KnownOfId([LINE], [LATE, RECORD], [ENTRY])) == [Class.CORRECT]
    assert of(KnownOfId([LINE], [LATE], [ENTRY])) == [Class.LOST_CLEARED]
    assert of(KnownOfId([LINE], [LATE], [replace(ENTRY, state="reopened")])) == [Class.LOST_RETIRED]
    assert of(KnownOfId([], [LATE])) == [Class.INVENTED]


def test_twice() -> None:
    again = replace(RECORD, offset=500)
    found = only(KnownOfId([LINE], [RECORD, again], [ENTRY]))
    assert (found.kind, found.record) == (Class.DUPLICATED, again)
    assert found.evidence["registered"] == f"east/joined/e-000001.jsonl:0 {TOKEN}"
    across = replace(RECORD, datacentre="west", token="0000020000000001")
    found = only(KnownOfId([LINE, WEST], [across, RECORD], [ENTRY]))
    assert (found.kind, found.record) == (Class.DUPLICATED_ACROSS, across)
    assert of(KnownOfId([LINE], [RECORD, again])) == [Class.DUPLICATED, Class.REGISTRY_MISSING]
    many = only(KnownOfId([LINE], [RECORD] * 9, [ENTRY], records_all=1000))
    assert many.evidence["count"] == 1000
    assert len(many.evidence["records"]) == 9  # type: ignore[arg-type]


def test_an_unmatched_line_that_was_given_up_makes_no_duplicate() -> None:
    given_up = replace(UNMATCHED, given_up=True, token="0000020000000001")
    assert of(KnownOfId([LINE], [given_up, RECORD], [ENTRY], records_all=2)) == [Class.CORRECT]
    assert of(KnownOfId([LINE], [given_up], [replace(ENTRY, kind="unmatched", token=given_up.token or "")])) == [
        Class.PRIMARY_EXISTS
    ], "nobody has joined it yet"
    assert of(KnownOfId([LINE], [given_up, RECORD, RECORD], [ENTRY], records_all=3)) == [Class.DUPLICATED]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"key": b"8"}, ["key"]),
        ({"time_ns": 8}, ["event_time_ns"]),
        ({"foreign": 8}, ["foreign"]),
        ({"primary": 8}, ["primary"]),
        ({"primary_offset": 8}, ["primary_source"]),
        ({"primary_log": "x"}, ["primary_source"]),
        ({"log_offset": 8}, ["source"]),
        ({"log": "x", "key": b"8"}, ["source", "key"]),
        ({"kind": "filtered", "foreign": 2, "primary": None}, ["kind"]),
        ({"kind": "rejected", "foreign": 5, "primary": None, "primary_log": None}, ["kind", "record"]),
    ],
)
def test_wrongly_joined_names_the_fields(change: dict[str, object], fields: list[str]) -> None:
    record = replace(RECORD, **change)  # type: ignore[arg-type]
    found = only(KnownOfId([LINE], [record], [replace(ENTRY, kind=record.kind)]))
    assert (found.kind, found.evidence["fields"]) == (Class.WRONGLY_JOINED, fields)


def test_a_record_of_a_datacentre_without_the_event() -> None:
    found = only(KnownOfId([WEST], [RECORD], [ENTRY]))
    assert (found.kind, found.evidence["fields"]) == (Class.WRONGLY_JOINED, ["source"])
    assert found.evidence["why"] == "no raw log of east has this event"


def test_of_two_lines_with_one_id_either_may_be_the_one() -> None:
    other = replace(LINE, foreign=50, record=51)
    assert of(KnownOfId([other, LINE], [RECORD], [ENTRY])) == [Class.CORRECT]
    assert of(KnownOfId([other, replace(LINE, offset=99)], [RECORD], [ENTRY])) == [Class.WRONGLY_JOINED]


def test_unmatched_or_not() -> None:
    unmatched = replace(ENTRY, kind="unmatched")
    assert of(KnownOfId([LINE], [UNMATCHED], [unmatched])) == [Class.PRIMARY_EXISTS]
    assert only(KnownOfId([LINE], [UNMATCHED], [unmatched])).evidence["records"] == 1, "by which a repair goes"
    own_absent = [ABSENT, WEST]
    assert of(KnownOfId(own_absent, [UNMATCHED], [unmatched])) == [Class.PRIMARY_EXISTS], "in the other datacentre"
    found = only(KnownOfId([ABSENT], [RECORD], [ENTRY]))
    assert found.kind is Class.SHOULD_BE_UNMATCHED
    wrong = replace(UNMATCHED, foreign=77)
    assert only(KnownOfId([ABSENT], [wrong], [unmatched])).evidence["fields"] == ["record"]


def test_filtered_and_rejected_are_compared_as_their_kind() -> None:
    line = replace(LINE, kind="filtered", foreign=None, primary=None)
    filtered = replace(RECORD, kind="filtered", foreign=2, primary=None)
    assert of(KnownOfId([line], [filtered], [replace(ENTRY, kind="filtered")])) == [Class.CORRECT]
    found = only(KnownOfId([line], [replace(filtered, primary_offset=9)], [replace(ENTRY, kind="filtered")]))
    assert found.evidence["fields"] == ["primary_source"]
    assert of(KnownOfId([line], [RECORD], [ENTRY])) == [Class.WRONGLY_JOINED]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"token": "ff"}, "token"),
        ({"kind": "unmatched"}, "kind"),
        ({"time_ns": 5}, "event_time_ns"),
        ({"datacentre": "west"}, "datacentre"),
        ({"state": "reopened"}, "state"),
    ],
)
def test_an_entry_that_differs(change: dict[str, object], field: str) -> None:
    found = only(KnownOfId([LINE], [RECORD], [replace(ENTRY, **change)]))  # type: ignore[arg-type]
    assert (found.kind, found.evidence["fields"]) == (Class.REGISTRY_DIFFERS, [field])


def test_one_id_with_two_times_is_joined_once_whichever_line_was_first() -> None:
    other = replace(LINE, offset=5, time_ns=90_000)
    assert of(KnownOfId([other, LINE], [RECORD], [ENTRY])) == [Class.CORRECT]
    first = replace(ABSENT, time_ns=RECORD.time_ns, outside=True)
    assert of(KnownOfId([other, first], [RECORD], [ENTRY])) == [Class.CORRECT], "its record is of another night"
    again = replace(ENTRY, time_ns=90_000, generation=1)  # reopened, and taken up by the other line
    assert of(KnownOfId([other, LINE], [RECORD], [again])) == [Class.CORRECT]


def test_an_entry_that_is_not_there_or_twice() -> None:
    assert of(KnownOfId([LINE], [RECORD])) == [Class.REGISTRY_MISSING]
    assert of(KnownOfId([LINE], [RECORD], collected=True)) == [Class.CORRECT]
    assert of(KnownOfId([LINE], [RECORD], registry=False)) == [Class.CORRECT]
    found = only(KnownOfId([LINE], [RECORD], [ENTRY, replace(ENTRY, token="ff")]))
    assert (found.kind, found.evidence["fields"]) == (Class.REGISTRY_DIFFERS, ["shard"])


def test_what_was_written_after_the_export_is_not_compared_with_it() -> None:
    fresh = replace(RECORD, fresh=True)
    assert of(KnownOfId([LINE], [fresh])) == [Class.CORRECT]
    assert of(KnownOfId([LINE], [fresh], [replace(ENTRY, state="reopened")])) == [Class.CORRECT]


def test_unreadable_lines_are_rejected_once_each() -> None:
    assert of(KnownOfId([UNREADABLE], [REJECTED])) == [Class.CORRECT]
    assert of(KnownOfId([UNREADABLE])) == [Class.LOST_UNREADABLE]
    assert of(KnownOfId([replace(UNREADABLE, unread=True)])) == [Class.PENDING]
    assert of(KnownOfId([UNREADABLE], [REJECTED] * 2)) == [Class.DUPLICATED]
    assert of(KnownOfId([UNREADABLE] * 2, [REJECTED] * 2)) == [Class.CORRECT], "two rotated logs of one name"
    assert of(KnownOfId([UNREADABLE, replace(UNREADABLE, unread=True)], [REJECTED])) == [Class.PENDING]
    assert only(KnownOfId([UNREADABLE], [replace(REJECTED, foreign=9)])).evidence == {"fields": ["record"]}
    assert only(KnownOfId([UNREADABLE], [replace(REJECTED, kind="joined")])).evidence == {"fields": ["kind"]}
    assert of(KnownOfId([UNREADABLE], [REJECTED], lines_all=5, records_all=9)) == [Class.DUPLICATED]


some_lines = [LINE, WEST, ABSENT, replace(LINE, kind="filtered"), replace(LINE, kind="rejected")]
lines = st.builds(replace, st.sampled_from(some_lines), offset=st.sampled_from([10, 11]), unread=st.booleans())
some_records = st.sampled_from([RECORD, UNMATCHED, LATE, replace(RECORD, datacentre="west")])
records = st.builds(replace, some_records, offset=st.integers(0, 3), foreign=st.sampled_from([1, 2, 9]))
states = st.sampled_from(["owned", "cleared", "reopened"])
entries = st.builds(replace, st.just(ENTRY), state=states, retired=st.booleans())
lists = st.lists(lines, max_size=3), st.lists(records, max_size=3), st.lists(entries, max_size=2)


@given(st.builds(KnownOfId, *lists, waiting=st.booleans(), collected=st.booleans(), registry=st.booleans()))
@example(KnownOfId())
def test_every_combination_has_a_class_and_correct_stands_alone(known: KnownOfId) -> None:
    found = classify(known)
    kinds = [finding.kind for finding in found]
    assert bool(found) == bool(known.lines or known.records or known.entries)
    good = {Class.CORRECT, Class.LATE, Class.PENDING} & set(kinds)
    assert not good or len(kinds) == 1
    verdicts = [record for record in known.records if record.kind != "late"]
    if kinds == [Class.CORRECT]:
        assert len(verdicts) == 1
        assert any(not differing(line, verdicts[0]) for line in known.lines)
    if known.lines and len(verdicts) > 1:
        assert kinds[0] in (Class.DUPLICATED, Class.DUPLICATED_ACROSS)
    if known.lines and not verdicts:
        assert kinds[0] in {Class.PENDING, Class.LATE} or kinds[0].startswith("lost")


# -- bounds: the primary event is there, and the two are no pair -----------------------------------------------------
UNPAIRED = replace(LINE, kind="unmatched", primary=None)
OUT_OF_BOUNDS = replace(UNMATCHED, primary_log="q.log", primary_offset=20)


def test_a_record_out_of_bounds_is_what_a_fresh_join_gives() -> None:
    entry = replace(ENTRY, kind="unmatched")
    assert of(KnownOfId([UNPAIRED], [OUT_OF_BOUNDS], [entry])) == [Class.CORRECT]
    assert of(KnownOfId([UNPAIRED], [UNMATCHED], [entry])) == [Class.CORRECT]  # its patience ended before
    elsewhere = replace(OUT_OF_BOUNDS, primary_offset=21)
    assert of(KnownOfId([UNPAIRED], [elsewhere], [entry])) == [Class.WRONGLY_JOINED]


def test_bounds_that_were_not_checked_are_found() -> None:
    assert of(KnownOfId([UNPAIRED], [RECORD], [ENTRY])) == [Class.SHOULD_BE_UNMATCHED]
    assert of(KnownOfId([LINE], [OUT_OF_BOUNDS], [replace(ENTRY, kind="unmatched")])) == [Class.PRIMARY_EXISTS]


def test_the_fresh_join_checks_bounds_itself() -> None:
    time = {"field": "t", "unit": "s"}
    sides = {"primary": {"format": "jsonl", "key": "k", "time": time}}
    sides["foreign"] = {**sides["primary"], "id": "id"}
    fresh = FreshJoin(bounded_adapter(ConfiguredAdapter(sides), Bounds(10**9, 0), "x"))
    row = {"record": b'{"k":1,"t":5,"id":"a"}', "log": "a.log", "header": None, "unreadable": None}
    primary = {"p_log": "q.log", "p_offset": 0, "p_name": "q.log", "p_header": None, "p_record": b'{"k":1,"t":4}'}
    assert fresh.expected({**row, **primary}).kind == "joined"
    assert fresh.expected({**row, **primary, "p_record": b'{"k":1,"t":3}'}).kind == "unmatched"


STANDING = frozenset({("foreign", "east", "b.log"), ("primary", "east", "q.log"), ("primary", "east", "p.log")})
LOGS = KnownLogs(STANDING, {}, {})


@pytest.mark.parametrize(
    ("logs", "lacks"),
    [
        (LOGS, True),
        (replace(LOGS, standing=STANDING | {("foreign", "east", "a.log")}), False),
        (KnownLogs(STANDING | {("foreign", "east", "a.log")}, {("foreign", "east", "a.log"): 11}, {}), True),
        (KnownLogs(STANDING | {("foreign", "east", "a.log")}, {("foreign", "east", "a.log"): 10}, {}), False),
        (KnownLogs(STANDING | {("foreign", "east", "a.log")}, {}, {("foreign", "east", "a.log"): 10}), True),
        (KnownLogs(STANDING | {("foreign", "east", "a.log")}, {}, {("foreign", "east", "a.log"): 11}), False),
    ],
)
def test_a_record_whose_log_is_not_there_is_no_invention(logs: KnownLogs, *, lacks: bool) -> None:
    found = only(KnownOfId([], [RECORD], [ENTRY], logs=logs))
    assert found.kind is (Class.LOG_GONE if lacks else Class.INVENTED)
    if lacks:
        assert (found.evidence["side"], found.evidence["log"], found.evidence["elsewhere"]) == (
            "foreign",
            "a.log",
            False,
        )
    elsewhere = only(KnownOfId([replace(WEST, offset=7)], [RECORD], [ENTRY], logs=logs))
    assert elsewhere.kind is (Class.LOG_GONE if lacks else Class.WRONGLY_JOINED)
    assert elsewhere.evidence.get("elsewhere", lacks) is lacks
    altered = only(KnownOfId([WEST], [replace(RECORD, foreign=9)], [ENTRY], logs=logs))
    assert altered.kind is Class.WRONGLY_JOINED, "another datacentre's line says otherwise"


def test_a_record_whose_primary_log_is_not_there_cannot_be_compared() -> None:
    logs = KnownLogs(frozenset({("foreign", "east", "a.log"), ("primary", "west", "q.log")}), {}, {})
    found = only(KnownOfId([ABSENT, WEST], [RECORD], [ENTRY], logs=logs))
    assert (found.kind, found.evidence["side"], found.evidence["log"]) == (Class.LOG_GONE, "primary", "q.log")
    assert found.evidence["elsewhere"] is True
    assert only(KnownOfId([ABSENT], [RECORD], [ENTRY], logs=logs)).evidence["elsewhere"] is False
    other = replace(LINE, primary=8, primary_log="p.log")
    assert of(KnownOfId([other], [RECORD], [ENTRY], logs=logs)) == [Class.LOG_GONE]
    assert of(KnownOfId([other], [replace(RECORD, key=b"8")], [ENTRY], logs=logs)) == [Class.WRONGLY_JOINED]
    assert of(KnownOfId([ABSENT], [RECORD], [ENTRY])) == [Class.SHOULD_BE_UNMATCHED]
    assert of(KnownOfId([LINE], [RECORD], [ENTRY], logs=logs)) == [Class.CORRECT]


def test_records_in_files_that_nothing_names_are_copies_unless_they_are_the_only_ones() -> None:
    copy = replace(RECORD, file="joined/e-000077.jsonl", unnamed=True)
    assert without_copies([copy, RECORD]) == [RECORD]
    assert without_copies([copy, replace(copy, offset=9)]) == [copy]
    late = replace(LATE, unnamed=True)
    assert without_copies([late, copy]) == [late, copy], "a claim that it was late is no record"
    given_up = replace(UNMATCHED, given_up=True)
    assert without_copies([given_up, copy]) == [given_up, copy]
    pairs = [replace(RECORD, pair=n, pairs=2) for n in (1, 2)]
    assert without_copies([pairs[0], *(replace(each, unnamed=True) for each in pairs)]) == [
        pairs[0], replace(pairs[1], unnamed=True)
    ]  # fmt: skip


def test_reasons_and_added_members() -> None:
    said, absent = 77, next(iter(ABSENT_REASONS))
    line, record = replace(ABSENT, reason=said), replace(UNMATCHED, reason=said)
    entry = replace(ENTRY, kind="unmatched")
    assert of(KnownOfId([line], [record], [entry])) == [Class.CORRECT]
    assert of(KnownOfId([line], [replace(record, reason=absent)], [entry])) == [Class.CORRECT], (
        "the primary came later"
    )
    assert only(KnownOfId([line], [replace(record, reason=9)], [entry])).evidence["fields"] == ["reason"]
    filtered = replace(LINE, kind="filtered", foreign=None, primary=None, reason=said)
    written = replace(RECORD, kind="filtered", foreign=2, primary=None, reason=absent)
    found = only(KnownOfId([filtered], [written], [replace(ENTRY, kind="filtered")]))
    assert (found.kind, found.evidence["fields"]) == (Class.WRONGLY_JOINED, ["reason"])
    assert only(KnownOfId([LINE], [replace(RECORD, added=True)], [ENTRY])).evidence["fields"] == ["members"]
