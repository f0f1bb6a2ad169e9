"""Messages as bytes: accepted ones, and rejected ones."""

from __future__ import annotations

import pytest

from photon.idregistry.raft.codec import REGULAR, Append, BadMessage, Chunk, SafePickle, Vote, decode, encode
from photon.idregistry.raft.options import COMMAND_BYTES_MAX, MESSAGE_BYTES_MAX, TRANSFER_BYTES


@pytest.mark.parametrize("command", [b"", b"\x02x", b"\x03x", b"\x01x", REGULAR + bytes(COMMAND_BYTES_MAX + 1)])
def test_membership_and_version_commands_do_not_enter(command: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(encode(Append(1, 1, 1, 1, [(1, command)])))


def test_limits() -> None:
    decode(encode(Append(1, 1, 1, 1, [(1, REGULAR + bytes(COMMAND_BYTES_MAX))])))
    for message, said in (
        (bytes(MESSAGE_BYTES_MAX + 1), "bytes; it must have"),
        (encode(Chunk(1, 1, 1, 1, 1, bytes(TRANSFER_BYTES + 1))), "."),
        (encode(Vote(-1)), "."),
        (b"\x09" + encode(Vote(1))[1:], "version 9"),
    ):
        with pytest.raises(BadMessage, match=said):
            decode(message)


def test_nothing_is_pickled() -> None:
    assert SafePickle.loads(b"anything") == (0, (b"anything",))
    for refused, given in ((SafePickle.dumps, 1), (SafePickle.load, 1), (SafePickle.dump, 2)):
        with pytest.raises(TypeError, match="raft: the library may not"):
            refused(*[object()] * given)
