"""The key process's answers to requests, without a process: messages, slots, and oversized ones."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import msgspec
import pytest

from photon.adapters.conditions import Condition
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.formats.part_rules import KeyPart
from photon.adapters.side import SideConfig, TimeConfig
from photon.eventstore.key_finding import process as layout
from photon.eventstore.key_finding.process import (
    DATA_BYTES,
    FOUND_BYTES,
    MEMORY_BYTES,
    MESSAGE_BYTES_MAX,
    FindKeys,
    JoinFormats,
    KeysFound,
    SharedSlots,
    framed,
    run,
)

PRIMARY = SideConfig(format="csv", key="k")
FOREIGN = SideConfig(format="csv", key="k", time=TimeConfig(field="t", unit="s"))
ADAPTER = ConfiguredAdapter.from_sides(PRIMARY, FOREIGN)
FILE = LogFile("a.csv", b"n,k")
DATA = b"1,one\n2,two\nbad\n3,three\r\n"


@pytest.fixture
def shared() -> Iterator[int]:
    fd = os.memfd_create("test")
    os.truncate(fd, MEMORY_BYTES)
    yield fd
    os.close(fd)


def ask(fd: int, asked: list[FindKeys]) -> list[KeysFound]:
    """The process's answer."""
    requests = io.BytesIO(b"".join(map(framed, (JoinFormats(PRIMARY, FOREIGN), *asked))))
    replies = io.BytesIO()
    run(requests, replies, fd)
    raw, told = replies.getvalue(), []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        told.append(msgspec.msgpack.decode(raw[4:end], type=KeysFound))
        raw = raw[end:]
    return told


def test_the_process_reads_as_the_join_is_configured() -> None:
    key = KeyPart(field="u", part="?k", trim=True)
    skip = (Condition(field="kind", equals=["a", None]), Condition(field="n", below=3.5, missing=False))
    join = JoinFormats(
        SideConfig(format="jsonl", key=(key, "x"), skip=skip),
        SideConfig(format="jsonl", key=(key, "x"), id=KeyPart(field="u", pattern="i=(.)"), skip=skip),
    )
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(join), type=JoinFormats)
    rules = [ConfiguredAdapter.from_sides(each.primary, each.foreign).rule() for each in (join, again)]
    assert again == join
    assert rules[0] == rules[1]


def test_what_does_not_fit_is_left_to_the_reader(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = SharedSlots(shared)
    assert not slots.put_data(1, bytes(DATA_BYTES + 1))
    assert slots.put_data(1, bytes(DATA_BYTES))
    assert slots.put_data(1, DATA)
    monkeypatch.setattr(layout, "FOUND_BYTES", 47)  # three keys take 48
    assert ask(shared, [FindKeys(1, len(DATA), FILE.path, FILE.header)]) == [KeysFound(-1, 0)]
    assert FOUND_BYTES > 47
    slots.close()


def test_a_message_that_is_too_long_is_not_waited_for(shared: int) -> None:
    with pytest.raises(ValueError, match="a message of"):
        run(io.BytesIO((MESSAGE_BYTES_MAX + 1).to_bytes(4, "little")), io.BytesIO(), shared)
