"""Messages as bytes: what goes through, and what does not."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.idregistry.raft.codec import (
    CODEC_VERSION,
    NO_OP,
    REGULAR,
    Append,
    AppendAck,
    AskVotes,
    BadMessage,
    Chunk,
    ChunkAck,
    Message,
    RequestVote,
    SafePickle,
    Stand,
    Vote,
    WouldVote,
    decode,
    encode,
)
from photon.idregistry.raft.options import COMMAND_BYTES_MAX, MESSAGE_BYTES_MAX, TRANSFER_BYTES

COUNT = st.integers(0, 2**62)
ENTRIES = st.lists(
    st.tuples(COUNT, st.one_of(st.just(NO_OP), st.binary(max_size=50).map(REGULAR.__add__))), max_size=5
)
MESSAGES = st.one_of(
    st.builds(RequestVote, COUNT, COUNT, COUNT),
    st.builds(Vote, COUNT),
    st.builds(Append, COUNT, COUNT, COUNT, COUNT, ENTRIES),
    st.builds(AppendAck, COUNT, COUNT, st.booleans()),
    st.builds(Chunk, COUNT, COUNT, COUNT, COUNT, COUNT, st.binary(max_size=100)),
    st.builds(ChunkAck, COUNT, COUNT, COUNT, st.booleans()),
    st.builds(AskVotes, COUNT, COUNT, COUNT),
    st.builds(WouldVote, COUNT, COUNT, st.booleans()),
    st.builds(Stand, COUNT),
)


@settings(max_examples=200, deadline=None)
@given(MESSAGES)
def test_there_and_back(message: Message) -> None:
    assert decode(encode(message)) == message


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_anything_else_is_a_bad_message(data: bytes) -> None:
    for each in (data, bytes([CODEC_VERSION]) + data, pickle.dumps(data)):
        try:
            decode(each)
        except BadMessage:
            continue


@pytest.mark.parametrize("command", [b"", b"\x02x", b"\x03x", b"\x01x", REGULAR + bytes(COMMAND_BYTES_MAX + 1)])
def test_membership_and_version_commands_do_not_enter(command: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(encode(Append(1, 1, 1, 1, [(1, command)])))


def test_limits() -> None:
    decode(encode(Append(1, 1, 1, 1, [(1, REGULAR + bytes(COMMAND_BYTES_MAX))])))
    with pytest.raises(BadMessage, match="bytes, must be"):
        decode(bytes(MESSAGE_BYTES_MAX + 1))
    with pytest.raises(BadMessage):
        decode(encode(Chunk(1, 1, 1, 1, 1, bytes(TRANSFER_BYTES + 1))))
    with pytest.raises(BadMessage):
        decode(encode(Vote(-1)))
    with pytest.raises(BadMessage, match="version 9"):
        decode(b"\x09" + encode(Vote(1))[1:])


def test_nothing_is_pickled() -> None:
    assert SafePickle.loads(b"anything") == (0, (b"anything",))
    for refused in (SafePickle.dumps, SafePickle.load):
        with pytest.raises(TypeError, match="raft: the library may not"):
            refused(object())
    with pytest.raises(TypeError, match="raft: the library may not"):
        SafePickle.dump(object(), object())
