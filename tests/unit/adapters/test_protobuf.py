"""Length-delimited protobuf: paths, times, JSON, fields that the descriptor does not know, purity."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, AdapterError, BadRecord, ForeignHeader, LogFile
from photon.adapters.loader import load_adapter
from tests.unit.adapters.messages import descriptor_set, event_class
from tests.unit.refusals import one_line

FILE = LogFile("events.bin")
Event = event_class(descriptor_set())
Newer = event_class(descriptor_set(extra=("added", "also")))
SIDE = {"format": "protobuf", "descriptor": "event.pb", "message": "test.Event"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pb")
    (directory / "event.pb").write_bytes(descriptor_set())
    (directory / "newer.pb").write_bytes(descriptor_set(extra=("added", "also")))
    return directory


def adapter_of(base: Path, time: dict[str, str] | None = None, **foreign: Any) -> Adapter:
    at = time or {"field": "number", "unit": "us"}
    sides = {
        "primary": {**SIDE, "key": "key.name"},
        "foreign": {**SIDE, "key": "key.name", "id": "text", "time": at, **foreign},
    }
    return load_adapter("configured", sides, base)


def record(message: Any) -> bytes:
    return b64encode(message.SerializeToString())


def test_key_id_time_and_payload(base: Path) -> None:
    adapter = adapter_of(base)
    event = Event(key={"name": "q1"}, text="c1", number=5, raw=b"\xff\x00", keys=[{"name": "a"}])
    assert adapter.foreign_header(record(event), FILE) == ForeignHeader(b"q1", 5000, b"c1")
    assert adapter.primary_key(record(event), FILE) == b"q1"
    payload = adapter.foreign_payload(record(event), FILE)
    assert payload is not None
    assert orjson.loads(payload) == {
        "key": {"name": "q1"}, "text": "c1", "number": "5", "raw": "/wA=", "keys": [{"name": "a"}],
    }  # fmt: skip


def test_times(base: Path) -> None:
    event = Event(key={"name": "q"}, text="c", number=7, seconds=1.5, at={"seconds": 10, "nanos": 123})
    for time, ns in (
        ({"field": "number", "unit": "s"}, 7 * 10**9),
        ({"field": "number", "unit": "ms"}, 7 * 10**6),
        ({"field": "number", "unit": "ns"}, 7),
        ({"field": "seconds", "unit": "s"}, 1_500_000_000),
        ({"field": "at", "format": "timestamp"}, 10_000_000_123),
    ):
        assert adapter_of(base, time).foreign_header(record(event), FILE).event_time_ns == ns
    text = Event(key={"name": "q"}, text="2024-01-01T00:00:00Z")
    at = adapter_of(base, {"field": "text", "format": "iso8601"}).foreign_header(record(text), FILE)
    assert at.event_time_ns == 1_704_067_200 * 10**9


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Event(text="c", number=5), "key field 'key.name' is missing"),
        (Event(key={}, text="c", number=5), "key field 'key.name' is empty"),
        (Event(key={"name": "q"}, number=5), "id field 'text' is empty"),
    ],
)
def test_bad_records(base: Path, message: Any, reason: str) -> None:
    with pytest.raises(BadRecord) as caught:
        adapter_of(base).foreign_header(record(message), FILE)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"=", "key field 'key.name' is missing"),
        (b"==", "not the base64"),
        (b"a b", "not the base64"),
        (b"/////w==", "not a protobuf message of this type"),
    ],
)
def test_lines_that_are_no_message(base: Path, line: bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        adapter_of(base).primary_key(line, FILE)


def test_a_number_as_key_is_not_zero_by_accident(base: Path) -> None:
    adapter = adapter_of(base, key="number", time={"field": "seconds", "unit": "s"})
    assert adapter.foreign_header(record(Event(number=12, text="c")), FILE).key == b"12"
    with pytest.raises(BadRecord, match="key field 'number' is empty"):
        adapter.foreign_header(record(Event(text="c")), FILE)


@pytest.mark.parametrize(
    "newer", [{"added": "x"}, {"key": {"name": "q", "also": "y"}}, {"keys": [{}, {"added": "z"}]}]
)
def test_unknown_fields_survive(base: Path, newer: dict[str, Any]) -> None:
    message = Newer(**{"key": {"name": "q"}, "text": "c", "number": 5, **newer}).SerializeToString()
    payload = adapter_of(base).foreign_payload(b64encode(message), FILE)
    assert payload is not None
    fields = orjson.loads(payload)
    assert fields["text"] == "c"
    assert Newer.FromString(b64decode(fields["message_raw_base64"])) == Newer.FromString(message)
    known = adapter_of(base).foreign_payload(record(Event(text="c")), FILE)
    assert known is not None
    assert b"raw_base64" not in known


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"message": "test.Other"}, "message = 'test.Other' is not in the descriptor"),
        ({"descriptor": "none.pb"}, "cannot be read (No such file or directory)"),
        ({"descriptor": "junk.pb"}, "is not a FileDescriptorSet"),
        ({"descriptor": "part.pb"}, "descriptor is incomplete"),
        ({"key": "key.nam"}, "'key.nam' is not a field of test.Event"),
        ({"key": "text.x"}, "'text.x' is not a field of test.Event"),
        ({"key": "keys.name"}, "leads through a repeated field"),
        ({"key": "key"}, "cannot be the key"),
        ({"key": "seconds"}, "cannot be the key"),
        ({"message": None}, "message is missing"),
        ({"format": "jsonl"}, "remove it, or write format"),
    ],
)
def test_configurations_that_cannot_be(base: Path, change: dict[str, Any], says: str) -> None:
    from google.protobuf import descriptor_pb2

    (base / "junk.pb").write_bytes(b"\xff\xff\xff junk")
    whole = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set())
    (base / "part.pb").write_bytes(descriptor_pb2.FileDescriptorSet(file=[whole.file[1]]).SerializeToString())
    with one_line(AdapterError, says):
        adapter_of(base, **change)


def test_the_rule_is_where_values_stand_not_what_else_a_message_has(base: Path) -> None:
    rule = adapter_of(base).rule()
    assert adapter_of(base, descriptor="newer.pb").rule() == rule
    assert adapter_of(base, key="text").rule() != rule
    assert adapter_of(base, time={"field": "number", "unit": "ms"}).rule() != rule


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=8), "number": st.integers(0, 2**64 - 1), "raw": st.binary(max_size=8),
        "seconds": st.floats(), "key": st.fixed_dictionaries({}, optional={"name": st.text(max_size=4)}),
        "keys": st.lists(st.fixed_dictionaries({}, optional={"name": st.text(max_size=4)}), max_size=2),
    },
)  # fmt: skip


@given(st.lists(st.one_of(EVENTS.map(lambda fields: record(Event(**fields))), st.binary(max_size=12)), max_size=8))
@settings(deadline=None, max_examples=200)
def test_any_records(base: Path, lines: list[bytes]) -> None:
    """Pure, keys of a block equal single ones, payloads are JSON on one line, and BadRecord is the only exception."""
    adapter = adapter_of(base)
    lines = [line.replace(b"\n", b"") for line in lines]
    block = b"".join(line + b"\n" for line in lines)
    keys = adapter.primary_keys(block, FILE)
    assert keys == Adapter.primary_keys(adapter, block, FILE)
    for line, header in zip(lines, adapter.header_columns(lines, FILE).rows(), strict=True):
        assert header == adapter_of(base).header_columns([line], FILE).rows()[0]
        if isinstance(header, ForeignHeader):
            payload = adapter.foreign_payload(line, FILE)
            assert payload is not None
            assert b"\n" not in payload
            assert isinstance(orjson.loads(payload), dict)


def test_both_sides_are_framed_by_lengths(base: Path) -> None:
    adapter = adapter_of(base)
    assert isinstance(adapter, ConfiguredAdapter)
    assert (adapter.primary_framing.kind, adapter.foreign_framing.kind) == ("varint", "varint")
    assert not adapter.primary_framing.splittable
