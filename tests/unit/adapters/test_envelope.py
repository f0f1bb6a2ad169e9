"""Output lines: their contents, and that the reader finds them again."""

from __future__ import annotations

import base64

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters import envelope as envelope_module
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.envelope_reader import EnvelopeError, OutputRef, read_block, read_line
from photon.adapters.faults import payload_fault
from photon.batch.events import ForeignEvent
from photon.batch.records import PrimaryRecord
from photon.outputs.event_times import EventTimes
from photon.outputs.records import decode
from photon.spark.output_lines import NoRecord, read_output_line
from photon.verifier.published_lines import NotPublished, read_published
from tests.lines import event_of, joined_lines, undone_lines

TOKEN = 5 << 40 | 17
AT = 1_588_206_048_592_985_999
INT64 = st.integers(-(2**63), 2**63 - 1)


EVENT = event_of(b"10.0.0.1:7:99")
PRIMARY = PrimaryRecord(b'{"q":1}', LogFile("queries.log"), 7)


def one(event: ForeignEvent = EVENT, payload: Joined | None = None, **settings: bool) -> bytes:
    payload = payload or Joined(event.record, PRIMARY.record)
    (line,) = joined_lines(Envelope(**settings), [event], [PRIMARY], [payload], token=TOKEN, at_ns=AT)
    return line


def test_the_documented_line() -> None:
    assert one() == (
        b'{"event_id":"10.0.0.1:7:99","key":"q1","event_time_ns":123,"foreign":{"c":1},"primary":{"q":1},'
        b'"source":{"file":"a/clicks.log","offset":42},"primary_source":{"file":"queries.log","offset":7},'
        b'"joined_at":"2020-04-30T00:20:48.592985Z","token":"0000050000000011"}\n'
    )
    assert read_line(one()) == OutputRef(EVENT.event_id, TOKEN, 123)


def test_the_primary_events_time_stands_next_to_the_registered_one() -> None:
    primary = {"format": "jsonl", "key": "q", "time": {"field": "at", "unit": "s"}}
    adapter = ConfiguredAdapter({"primary": primary, "foreign": {"format": "jsonl", "key": "q", "time": "primary"}})
    assert (adapter.has_foreign_time, adapter.foreign_header(b'{"q":"k"}', LogFile("f")).event_time_ns) == (False, 0)
    event = EVENT._replace(event_time_ns=0)
    primaries = [PrimaryRecord(b'{"q":"k","at":%d}' % at, LogFile(f"{at % 2}.log"), 0) for at in (3, 4, 5)]
    payloads = [Joined(b"{}", b"{}")] * 3
    lines = joined_lines(Envelope(adapter=adapter), [event] * 3, primaries, payloads, token=TOKEN, at_ns=AT)
    heads = [b'"key":"q1","event_time_ns":%d000000000,"registered_ns":0,"foreign":{},' % at for at in (3, 4, 5)]
    assert all(head in line for head, line in zip(heads, lines, strict=True))
    assert {read_line(line) for line in lines} == {OutputRef(EVENT.event_id, TOKEN, 0)}
    assert read_block(b"".join(lines)).event_times_ns == [0, 0, 0]
    assert {read_published(line).event_time_ns for line in lines} == {0}, "what the verifier asks the registry for"
    read = [read_output_line(line[:-1], "joined") for line in lines]
    assert {line.registered_ns for line in read} == {0}, "and Spark"
    assert (
        [line.event_time_ns for line in read]
        == decode(b"".join(lines)).event_time_ns
        == [3 * 10**9, 4 * 10**9, 5 * 10**9]
    )
    times = EventTimes()
    times.add(b"".join(lines))
    assert times.span() == (0, 5 * 10**9), "readers choose files by either"


def test_time_and_token_can_be_left_out() -> None:
    full = orjson.loads(one())
    for at in (True, False):
        for token in (True, False):
            line = one(with_joined_at=at, with_token=token)
            left_out = {name for name, kept in (("joined_at", at), ("token", token)) if not kept}
            assert orjson.loads(line) == {name: value for name, value in full.items() if name not in left_out}
            assert read_line(line) == OutputRef(EVENT.event_id, TOKEN if token else None, 123)


def test_what_is_not_utf8_becomes_base64() -> None:
    event = EVENT._replace(event_id=b"\xff1", key=b"\xfe", record=b"\xfd raw")
    line = one(event, Joined(None, None))
    got = orjson.loads(line)
    assert {name: base64.b64decode(value) for name, value in got.items() if name.endswith("_raw_base64")} == {
        "event_id_raw_base64": b"\xff1",
        "key_raw_base64": b"\xfe",
        "foreign_raw_base64": b"\xfd raw",
        "primary_raw_base64": PRIMARY.record,
    }
    assert not {"event_id", "key", "foreign", "primary"} & set(got)
    assert read_line(line) == OutputRef(b"\xff1", TOKEN, 123)


@given(
    st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=6), INT64, st.text()), max_size=5),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
@settings(deadline=None)
def test_reader_finds_what_was_written(rows: list[tuple[bytes, bytes, int, str]], token: int, with_at: bool) -> None:
    envelope = Envelope(with_joined_at=with_at)
    events = [
        event_of(event_id, key, time, orjson.dumps({"token": path}), LogFile(path))
        for event_id, key, time, path in rows
    ]
    payloads = [Joined(event.record, event.record) for event in events]
    primaries = [PrimaryRecord(b"", event.file, 2) for event in events]
    lines = joined_lines(envelope, events, primaries, payloads, token=token, at_ns=AT)
    for event, line in zip(events, lines, strict=True):
        assert read_line(line) == OutputRef(event.event_id, token, event.event_time_ns)
        got = orjson.loads(line)
        assert got["foreign"] == {"token": event.file.path}
        assert got["source"]["file"] == event.file.path
    refs = read_block(b"".join(lines), parse=True)
    assert refs.event_ids == [event.event_id for event in events]
    assert refs.tokens == [token] * len(events)
    assert refs.event_times_ns == [event.event_time_ns for event in events]


def test_payload_that_looks_like_the_end_of_a_line() -> None:
    trap = b'{"x":"1","token":"ffffffffffffffff"}'
    line = one(payload=Joined(trap, trap), with_joined_at=False, with_token=False)
    assert read_line(line) == OutputRef(EVENT.event_id, None, 123)
    assert read_line(one(payload=Joined(trap, trap))) == OutputRef(EVENT.event_id, TOKEN, 123)


@pytest.mark.parametrize("payload", [b'{"a":\n1}', b"1\n"])
def test_a_torn_line_is_never_built(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"a/clicks.log:42 holds a newline"):
        one(payload=Joined(payload, b"{}"))


@pytest.mark.parametrize(
    ("payload", "fault"),
    [(None, None), (b"{}", None), (b"[1]", None), ("{}", "is str, not bytes"), (b"{", "not JSON"),
     (b"{\n}", "line end"), (b"{\r}", "line end"), (b"\xff", "not JSON"), (b"", "not JSON")],
)  # fmt: skip
def test_faults_of_adapters(payload: object, fault: str | None) -> None:
    found = payload_fault(payload)
    assert found is None if fault is None else fault in str(found)


def test_lines_of_the_other_logs() -> None:
    envelope = Envelope()
    odd = EVENT._replace(record=b"\xff", key="é".encode())
    lines = undone_lines(
        envelope, [EVENT, odd], ["no primary", 'said "no"'], token=TOKEN, at_ns=AT, primaries=[None, PRIMARY]
    )
    assert orjson.loads(lines[0]) == {
        "event_id": "10.0.0.1:7:99", "key": "q1", "event_time_ns": 123, "reason": "no primary", "record": '{"c":1}',
        "source": {"file": "a/clicks.log", "offset": 42}, "decided_at": "2020-04-30T00:20:48.592985Z",
        "token": "0000050000000011",
    }  # fmt: skip
    second = orjson.loads(lines[1])
    assert second["reason"] == 'said "no"'
    assert second["record_raw_base64"] == "/w=="
    assert second["primary_source"] == {"file": "queries.log", "offset": 7}
    assert [read_line(line) for line in lines] == [OutputRef(EVENT.event_id, TOKEN, 123)] * 2
    (late,) = undone_lines(envelope, [EVENT], ["late"], token=None, at_ns=AT)
    assert read_line(late) == OutputRef(EVENT.event_id, None, 123)
    unreadable = envelope.unreadable(b'{"k', LogFile("a.log"), 9, "is not JSON", at_ns=AT)
    assert orjson.loads(unreadable) == {
        "reason": "is not JSON", "record": '{"k', "source": {"file": "a.log", "offset": 9},
        "decided_at": "2020-04-30T00:20:48.592985Z",
    }  # fmt: skip
    assert read_line(unreadable) is None
    refs = read_block(lines[0] + unreadable + late + one(), parse=True)
    assert refs.tokens == [TOKEN, 0, TOKEN]
    assert refs.event_ids == [EVENT.event_id] * 3


def test_what_is_no_output_line() -> None:
    line = one()
    for cut in range(len(line)):
        with pytest.raises(EnvelopeError, match="not an output record"):
            read_line(line[:cut])
    odd = [line.replace(b'"event_id":"10', each) for each in (b'"event_id_raw_base64":"!10', b'"event_id":"\\x10')]
    for bad in (b"\n", b"{}\n", b'{"event_id":"a"}\n', b"x" + line, line + b"\n", *odd):
        with pytest.raises(EnvelopeError):
            read_line(bad)
    torn = line[: line.index(b'"primary"') + 12] + line  # overwritten: found by parsing
    for block, parse in ((line + line[:-1], False), (line + torn, True)):
        with pytest.raises(EnvelopeError):
            read_block(block, parse=parse)
    assert read_block(b"").event_ids == []


@pytest.mark.parametrize("member", [b'"event_time_ns":', b'"offset":'])
def test_a_number_beyond_64_bits_is_no_record(member: bytes) -> None:
    line = one(EVENT._replace(event_time_ns=1 << 62)).replace(b'"offset":42', b'"offset":4611686018427387904')
    at = line.index(member + b"46116") + len(member)
    flipped = line[:at] + bytes([line[at] ^ 0x0D]) + line[at + 1 :]
    with pytest.raises(NotPublished):
        read_published(flipped)
    with pytest.raises(NoRecord):
        read_output_line(flipped[:-1], "joined")
    assert [bool(why) for why in decode(line + flipped).torn] == [False, True]
    if member == b'"event_time_ns":':
        with pytest.raises(EnvelopeError):
            read_block(line + flipped)


def test_file_names_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope_module, "FILE_NAMES_MAX", 2)
    envelope = Envelope()
    for name in ("a", 'b"', "c", "\udcff"):
        line = envelope.unreadable(b"", LogFile(name), 0, "x", at_ns=0)
        assert orjson.loads(line)["source"]["file"] == ("\\xff" if name == "\udcff" else name)
        assert len(envelope._files) <= 2
