"""A line against its source records: bytes in, differences out."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, Filtered, ForeignHeader, Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.logs.place_ids import place_id
from photon.adapters.shaping import shaped_adapter
from photon.verifier import comparison
from photon.verifier.comparison import SourceRecord, are_foreign, are_primary
from photon.verifier.published_lines import NotPublished, PublishedLine, RecordPlace, read_published
from tests.lines import event_of, joined_lines, undone_lines
from tests.unit.verifier.logs import ADAPTER, AT_NS, Logs

TIME = {"field": "t", "unit": "s"}
BARE = Envelope(with_joined_at=False, with_token=False)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path, 4)


def no_bytes(offset: int, length: int) -> bytes:
    return b"." * length


def sources(logs: Logs, n: int) -> tuple[SourceRecord, SourceRecord]:
    event, primary = logs.event(n), logs.primary_of(n)
    return (
        SourceRecord(event.record, event.file, event.offset, no_bytes),
        SourceRecord(primary.record, primary.file, primary.offset, no_bytes),
    )


def differences(
    lines: Sequence[PublishedLine],
    kind: str,
    foreign: Sequence[SourceRecord],
    primary: Sequence[SourceRecord | None],
    adapter: Any,
    envelope: Envelope = BARE,
) -> list[list[str]]:
    are_foreign(adapter, foreign, lines)
    return comparison.differences(lines, kind, foreign, primary, adapter, envelope)


def compare(logs: Logs, line: bytes, n: int, kind: str = "joined", adapter: Any = ADAPTER) -> list[str]:
    foreign, primary = sources(logs, n)
    published = read_published(line)
    named = primary if published.primary is not None else None
    return differences([published], kind, [foreign], [named], adapter)[0]


def test_what_a_line_says_of_itself(logs: Logs) -> None:
    (line,) = logs.joined(2)
    seen = read_published(line)
    assert (seen.event_id, seen.key, seen.reason) == (b"c2", b"q2", None)
    assert (seen.source, seen.primary) == (
        RecordPlace("clicks.log", logs.event(2).offset),
        RecordPlace("queries.log", logs.primary_of(2).offset),
    )
    assert seen.written_ns == AT_NS
    made = Joined(logs.foreign_records[2], logs.primary_records[2])
    (body,) = joined_lines(BARE, [logs.event(2)], [logs.primary_of(2)], [made], token=0, at_ns=0)
    assert seen.body == body


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}\n",
        b'{"event_id":"a","key":"k","event_time_ns":1,"foreign":{},"primary":{}}\n',
        b'{"event_id":"a","key":"k","event_time_ns":1,"x":1,"source":{"file":"f","offset":1},"token":"1"}\n',
        b'{"event_id":"a","key":"k","event_time_ns":1,"x":1,"source":{"file":"f","offset":1}}',
        b'{"event_id_raw_base64":"?","key":"k","event_time_ns":1,"x":1,"source":{"file":"f","offset":1}}\n',
    ],
)
def test_what_is_no_line(line: bytes) -> None:
    with pytest.raises(NotPublished):
        read_published(line)


def test_a_payload_that_looks_like_a_source(logs: Logs) -> None:
    """The places are after the payloads; a payload's statement about itself is no place."""
    tricky = b'{"id":"c0","q":"q0","t":1600000000,"x":{"a":1,"source":{"file":"other","offset":9}}}'
    logs.foreign_records[0] = tricky
    (line,) = logs.joined(0)
    assert read_published(line).source == RecordPlace("clicks.log", 0)
    assert compare(logs, line, 0) == []


def test_names_and_ids_that_need_escapes() -> None:
    odd = event_of(b'a"\\\xff', "k\n\u00e9".encode(), 5, b"\xff\x00", LogFile('d/"odd\\ name".log'), 3)
    (line,) = undone_lines(Envelope(), [odd], ['why "so"'], token=None, at_ns=AT_NS)
    seen = read_published(line)
    assert (seen.event_id, seen.key) == (odd.event_id, odd.key)
    assert (seen.source, seen.reason) == (RecordPlace('d/"odd\\ name".log', 3), 'why "so"')


@pytest.mark.parametrize("kind", ["unmatched", "rejected"])
def test_right_lines_have_no_differences(logs: Logs, kind: str) -> None:
    for n in range(4):
        assert compare(logs, logs.joined(n)[0], n) == []
        assert compare(logs, logs.undone(n)[0], n, kind) == []
    bare = undone_lines(BARE, [logs.event(1)], ["r"], token=None, at_ns=0)
    assert compare(logs, bare[0], 1, kind) == []


def test_any_changed_byte_is_a_difference(logs: Logs) -> None:
    """Bytes that come from the sources; those that the joiner adds (time, token) are not compared."""
    seed = int(os.environ.get("PHOTON_SEED", "7"))
    print(f"PHOTON_SEED={seed}")
    draw = random.Random(seed)
    (line,) = logs.joined(3)
    end = line.rfind(b',"joined_at"')
    passed = []
    for at in range(1, end):
        other = draw.choice([byte for byte in b'abcXYZ019 {}"\\,:' if byte != line[at]])
        changed = line[:at] + bytes([other]) + line[at + 1 :]
        try:
            wrong = compare(logs, changed, 3)
        except NotPublished:
            continue
        if not wrong:
            passed.append(changed)
    assert passed == []


def test_differences_name_the_fields(logs: Logs) -> None:
    (line,) = logs.joined(1)
    for old, new, said in (
        (rb'"b1"', b'"bX"', 'primary.words is ["a","bX"], its source gives ["a","b1"]'),
        (rb'"text":"<1>"', b'"text":"<9>"', 'foreign.text is "<9>", its source gives "<1>"'),
        (rb'"event_time_ns":\d+', b'"event_time_ns":5', "event_time_ns is 5, its source gives 1600000001000000000"),
        (rb'"key":"q1"', b'"key":"q2"', 'key is "q2", its source gives "q1"'),
        (rb'"words":\[', b'"words": [', "its bytes, though all values are alike"),
    ):
        assert compare(logs, re.sub(old, new, line), 1) == [said]


def test_the_original_bytes_of_what_was_not_joined(logs: Logs) -> None:
    (line,) = logs.undone(2)
    assert compare(logs, line.replace(b"<2>", b"<3>"), 2, "unmatched")[0].startswith("record is ")
    odd = line.replace(b'"reason":"no primary event has this key"', b'"reason":"any"')
    assert compare(logs, odd, 2, "unmatched") == []  # the decision cannot be derived from the records


def test_which_record_is_meant(logs: Logs) -> None:
    (line,) = logs.joined(1)
    published = read_published(line)
    foreign, primary = sources(logs, 1)
    others = sources(logs, 2)
    broken = SourceRecord(b"\xff{", LogFile("clicks.log"), 0, no_bytes)
    assert are_foreign(ADAPTER, [others[0], foreign, broken], [published] * 3) == [False, True, False]
    assert are_primary(ADAPTER, [others[1], primary, broken], [published] * 3) == [False, True, False]
    elsewhere = replace(foreign, file=LogFile("old.log", b"another header"))
    assert are_foreign(ADAPTER, [foreign, elsewhere], [published] * 2) == [True, True], "one by one"


class Placed(ConfiguredAdapter):
    """Ids by place; filters and raises as told."""

    def __init__(self, answer: str = "") -> None:
        super().__init__({"foreign": {**_SIDE, "id": "id", "time": {"field": "t", "unit": "s"}}, "primary": _SIDE})
        self.answer = answer

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return super().foreign_header(record, file)._replace(event_id=None)

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        if self.answer == "filter":
            return Filtered("small")
        if self.answer == "raise":
            raise KeyError("boom")
        return super().join(foreign, foreign_file, primary, primary_file)


_SIDE: Mapping[str, Any] = {"format": "jsonl", "key": "q"}


class Picky(ConfiguredAdapter):
    """From one query it makes no line, from another one that cannot be written."""

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        if b'"q1"' in primary:
            return Joined(b"{\n}", None)
        return Filtered("q2") if b'"q2"' in primary else super().join(foreign, foreign_file, primary, primary_file)


def test_in_a_block_each_line_has_its_own_verdict(logs: Logs) -> None:
    foreign, primary = zip(*(sources(logs, n) for n in range(4)), strict=True)
    lines = [read_published(logs.joined(n)[0]) for n in range(4)]
    lines[3] = read_published(logs.joined(3)[0].replace(b'"key":"q3"', b'"key":"q4"'))
    picky = Picky({"foreign": ADAPTER.foreign_config, "primary": ADAPTER.primary_config})
    right, unwritten, filtered, other = differences(lines, "joined", foreign, primary, picky)
    assert right == []
    assert unwritten == ["the adapter's answer now cannot be written (ValueError)"]
    assert filtered == ["the adapter's answer now is Filtered, not Joined"]
    assert other == ['key is "q4", its source gives "q3"']
    assert differences((), "joined", (), (), picky) == []
    assert differences((), "unmatched", (), (), picky) == []
    gone = differences(lines[:2], "joined", foreign[:2], [None, primary[1]], ADAPTER)
    assert gone == [["primary_source: is missing"], []]


def test_an_id_that_is_a_place(logs: Logs) -> None:
    foreign, _ = sources(logs, 1)
    (line,) = logs.joined(1)
    moved = replace(foreign, read=lambda offset, length: b"!" * length)
    are_foreign(Placed(), [foreign, moved], [read_published(line)] * 2)
    assert foreign.event_id == place_id(foreign.record, foreign.offset, no_bytes)
    assert moved.event_id not in (foreign.event_id, None)


def test_what_the_adapter_says_now(logs: Logs) -> None:
    (line,) = logs.joined(1)
    foreign, primary = sources(logs, 1)

    def wrong(answer: str, kind: str = "joined", made: bytes = line) -> list[str]:
        return differences([read_published(made)], kind, [foreign], [primary], Placed(answer))[0]

    assert wrong("filter") == ["the adapter's answer now is Filtered, not Joined"]
    (raises,) = wrong("raise")
    assert raises.startswith("the adapter has no answer now: the adapter raised KeyError")
    event = logs.event(1)
    own = event._replace(event_id=place_id(event.record, event.offset, no_bytes))
    (filtered,) = undone_lines(Envelope(), [own], ["small"], token=1, at_ns=0, primaries=[logs.primary_of(1)])
    assert wrong("filter", "filtered", filtered) == []
    assert wrong("", "filtered", filtered) == ["the adapter's answer now is Joined, not Filtered"]
    assert orjson.loads(filtered)["primary_source"]["file"] == "queries.log"


def test_a_join_that_is_shaped_is_checked_in_its_shape(logs: Logs) -> None:
    """The shape belongs to the adapter, so verification joins again with it: the same code, the same bytes."""
    table = {
        "derive": [{"name": "foreign.pair", "text": "{foreign.id}-{primary.q}"}],
        "redact": {"primary.q": "mask"},
        "foreign": {"click": "id", "pair": "pair"},
    }
    shaped = shaped_adapter(ConfiguredAdapter(ADAPTER.options), table, "shape", Path())
    event, primary = logs.event(2), logs.primary_of(2)
    result = shaped.join(event.record, event.file, primary.record, primary.file)
    assert orjson.loads(result.foreign or b"") == {"click": "c2", "pair": "c2-q2"}
    (line,) = joined_lines(Envelope(), [event], [primary], [result], token=7, at_ns=AT_NS)
    assert compare(logs, line, 2, adapter=shaped) == []
    assert compare(logs, line, 2, adapter=ADAPTER) != []
    other = shaped_adapter(ConfiguredAdapter(ADAPTER.options), {**table, "redact": {}}, "shape", Path())
    assert compare(logs, line, 2, adapter=other) == ['primary.q is "****", its source gives "q2"']
    hides = {"filter": [{"field": "primary.q", "equals": "q2", "reason": "no"}]}
    filtering = shaped_adapter(ConfiguredAdapter(ADAPTER.options), hides, "shape", Path())
    assert compare(logs, line, 2, adapter=filtering) == ["the adapter's answer now is Filtered, not Joined"]


def test_what_is_not_joined_is_checked_without_what_is_redacted(logs: Logs) -> None:
    table = {"redact": {"foreign.text": "drop"}}
    hiding = shaped_adapter(ConfiguredAdapter(ADAPTER.options), table, "shape", Path())
    bare = Envelope(with_joined_at=False, with_token=False, adapter=hiding)
    foreign, _ = sources(logs, 2)
    for envelope, wrong in ((Envelope(adapter=hiding), False), (Envelope(), True)):
        (made,) = undone_lines(envelope, [logs.event(2)], ["no primary"], token=1, at_ns=0)
        assert bool(*differences([read_published(made)], "unmatched", [foreign], [None], hiding, bare)) is wrong


def test_an_adapter_that_hangs_now_is_told_and_holds_nothing_up(logs: Logs) -> None:
    class Hangs(ConfiguredAdapter):
        time_limit_s = 0.1

        def join(self, *pair: Any) -> Joined | Filtered:
            while True:
                pass

    (line,) = logs.joined(1)
    (said,) = compare(logs, line, 1, adapter=Hangs(ADAPTER.options))
    assert said.startswith("the adapter has no answer now: the adapter did not return within 0.1 s (")


def test_a_pair_out_of_bounds_is_unmatched_and_nothing_else(logs: Logs) -> None:
    sides = {"foreign": ADAPTER.foreign_config, "primary": {"format": "jsonl", "key": "q", "time": TIME}}
    logs.primary_records[1] = logs.primary_records[1][:-1] + b',"t":1600000001}'
    logs.primary_records[2] = logs.primary_records[2][:-1] + b',"t":1599999000}'
    adapter = bounded_adapter(ConfiguredAdapter(sides), Bounds(10**9, 0), "x")
    (near,), (far,) = logs.joined(1), logs.joined(2)  # by an adapter without bounds
    assert compare(logs, near, 1, adapter=adapter) == []
    assert compare(logs, far, 2, adapter=adapter) == ["the adapter's answer now is Unpaired, not Joined"]
    unpaired = [
        undone_lines(Envelope(), [logs.event(n)], ["out"], token=1, at_ns=0, primaries=[logs.primary_of(n)])[0]
        for n in (1, 2)
    ]
    assert compare(logs, unpaired[0], 1, "unmatched", adapter) == ["the adapter's answer now is Joined, not Unpaired"]
    assert compare(logs, unpaired[1], 2, "unmatched", adapter) == []
    (absent,) = logs.undone(2)
    assert compare(logs, absent, 2, "unmatched", adapter) == []


def test_an_unmatched_event_among_the_joined_ones(logs: Logs) -> None:
    def inline(n: int, payload: bytes | None = None, **more: Any) -> bytes:
        payloads = {0: payload or logs.foreign_records[n]}
        return undone_lines(Envelope(), [logs.event(n)], ["why"], token=1, at_ns=0, inline=payloads, **more)[0]

    both = [logs.joined(0)[0], inline(1), logs.joined(2)[0]]
    published = [read_published(line) for line in both]
    found = [sources(logs, n) for n in range(3)]
    named = [primary if line.primary else None for line, (_, primary) in zip(published, found, strict=True)]
    assert differences(published, "joined", [each for each, _ in found], named, ADAPTER) == [[], [], []]
    changed = logs.foreign_records[1].replace(b"<1>", b"<2>")
    assert compare(logs, inline(1, changed), 1) == ['foreign.text is "<2>", its source gives "<1>"']
    (unpaired,) = compare(logs, inline(1, primaries=[logs.primary_of(1)]), 1)
    assert unpaired == "the adapter's answer now is Joined, not Unpaired"
    assert compare(logs, logs.undone(1)[0], 1) != []  # its text is for ``unmatched``
    assert compare(logs, inline(1), 1, "unmatched") != []
    assert compare(logs, inline(1).replace(b'"reason":"why",', b""), 1) == ["primary_source: is missing"]

    class Bad(ConfiguredAdapter):
        def unmatched_payload(self, record: bytes, file: LogFile) -> bytes | None:
            raise BadRecord("cannot be")

    assert compare(logs, inline(1), 1, adapter=Bad(ADAPTER.options)) == ["the adapter has no payload now: cannot be"]
