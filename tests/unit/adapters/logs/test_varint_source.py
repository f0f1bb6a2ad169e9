"""Length-delimited messages as lines of base64: any messages, any growth, torn ends, damage, bounded memory."""

from __future__ import annotations

import random
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import Framing
from photon.adapters.logs import forward, varint_source
from photon.adapters.logs.reader import open_source
from photon.adapters.logs.varint_source import VarintSource
from tests.unit.adapters.logs import tails
from tests.unit.adapters.messages import delimited, varint


class Tail(tails.Tail):
    def __init__(self, directory: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(directory, *arguments, framing=Framing("varint"), **options)

    def read(self, *, final: bool = False) -> list[bytes]:
        return [b64decode(line) for line in super().read(final=final)]


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 3000).map(bytes)), max_size=12),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 900)), max_size=8),
    st.integers(5, 60),
)
@settings(deadline=None, max_examples=200)
def test_any_messages_read_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, messages: list[bytes], reads: list[tuple[int, int]], step: int
) -> None:
    path = tmp_path_factory.mktemp("v") / "a.bin"
    path.write_bytes(delimited(messages))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varint_source, "READ_BYTES", step)
        patch.setattr(varint_source, "PART_BYTES", 9)
        patch.setattr(forward, "MARK_SPACING_BYTES", 10)
        patch.setattr(forward, "MARKS_MAX", 4)
        source = VarintSource(open_source(path))
        whole = source.read(0, 1 << 20)
        assert [b64decode(line) if line != b"=" else b"" for line in whole.split(b"\n")[:-1]] == messages
        assert whole.count(b"\n") == len(messages)
        for at, length in reads:
            assert source.read(at, length) == whole[at : at + length]
        assert source.read(0, len(whole) + 1) == whole
        assert (source.damage(), source.cut_short()) == ("", False)
        source.close()


@given(st.lists(st.binary(max_size=12).map(lambda data: data + b"!"), max_size=8), st.lists(st.integers(1, 30)))
@settings(deadline=None, max_examples=100)
def test_a_growing_log_gives_each_message_once_it_is_whole(
    tmp_path_factory: pytest.TempPathFactory, messages: list[bytes], steps: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("v")
    data = delimited(messages)
    tail = Tail(directory)
    found: list[bytes] = []
    done = 0
    for step in [*steps, len(data)]:
        tails.append(directory / "a.bin", data[done : done + step])
        done = min(done + step, len(data))
        found += tail.read()
        ends = [len(delimited(messages[: n + 1])) for n in range(len(messages))]
        assert len(found) == sum(end <= done for end in ends)
        if step % 2:  # a restart
            positions = tail.follower.positions()
            tail.close()
            tail = Tail(directory, positions)
    assert found == messages
    tail.close()


def test_messages_over_the_limit_are_skipped_and_reported(tmp_path: Path) -> None:
    data = delimited([b"a", b"x" * 5_000_000, b"b", b"y" * 900])
    (tmp_path / "a.bin").write_bytes(data)
    tail = Tail(tmp_path, max_record=1000)
    assert tail.read() == [b"a", b"b"]
    assert [each.length for b in tail.blocks for each in b.oversized] == [(5_000_000 + 2) // 3 * 4, 1200]
    tail.close()


@pytest.mark.parametrize("bad", [b"\xff" * 9, b"\xff\xff\xff\xff\x1f"])
def test_what_is_no_length_is_damage(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(delimited([b"one"]) + bad)
    tail = Tail(tmp_path)
    assert tail.read() == [b"one"]
    assert [str(problem) for problem in tail.problems] == [
        "a.bin: no valid message length at byte 4; read up to byte 5"
    ]
    tail.close()


def test_long_messages_come_in_parts() -> None:
    assert varint_source.PART_BYTES % 3 == 0
    assert varint(300) == b"\xac\x02"


def test_the_first_byte_is_no_byte_order_mark(tmp_path: Path) -> None:
    message = random.Random(1).randbytes(0xEF)
    (tmp_path / "a.bin").write_bytes(varint(0xEF) + message + delimited([b"next"]))
    tail = Tail(tmp_path)
    assert tail.read() == [message, b"next"]
    tail.close()
