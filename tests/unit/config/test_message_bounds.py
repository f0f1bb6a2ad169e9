"""Messages with too many fields are refused before they are parsed."""

from __future__ import annotations

import contextlib

import pytest
from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from photon.config.message_bounds import MessageRefused, bounded, check_fields
from photon.eventstore import eventstore_pb2 as events
from photon.idregistry.raft import peer_pb2 as peer
from photon.joiner import joiner_pb2 as joiner


@given(st.lists(st.binary(max_size=300), max_size=20), st.text(max_size=20), st.binary(max_size=40))
def test_fields_are_counted_as_protobuf_writes_them(keys: list[bytes], join: str, as_of: bytes) -> None:
    message = events.EventLookUpRequest(join=join, keys=keys, as_of=as_of).SerializeToString()
    fields = len(keys) + bool(join) + bool(as_of)
    check_fields(message, fields)
    if fields:
        with pytest.raises(MessageRefused, match="more than"):
            check_fields(message, fields - 1)


@given(st.binary(max_size=200))
def test_what_protobuf_takes_is_taken_unless_it_has_groups(message: bytes) -> None:
    try:
        empty_pb2.Empty.FromString(message)
    except DecodeError:
        with contextlib.suppress(MessageRefused):  # either answer is right, another error is not
            check_fields(message, 1000)
        return
    why = ""
    try:
        check_fields(message, 1000)
    except MessageRefused as refused:
        why = str(refused)
    assert why == "" or "wire type 3" in why


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x0a", "unterminated"),
        (b"\x0a\xff\xff\xff\xff\x0f", "ends beyond"),
        (b"\x0a" + b"\xff" * 11, "unterminated"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x09\x00", "ends beyond"),
    ],
)
def test_what_is_no_protobuf_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(MessageRefused, match=why):
        check_fields(message, 10)


@pytest.mark.parametrize(
    ("kind", "field"), [(peer.PeerFrame, b"\x2a\x00"), (joiner.JoinRequest, b"\x3a\x00")], ids=["frame", "join"]
)
def test_a_flood_of_empty_messages_is_not_parsed(kind: type, field: bytes) -> None:
    parsed: list[object] = []
    parse = bounded(lambda message: parsed.append(kind.FromString(message)), 4096)  # type: ignore[attr-defined]
    parse(field * 10)
    with pytest.raises(MessageRefused, match="more than 4096 fields"):
        parse(field * (32 << 20))
    assert len(parsed) == 1
