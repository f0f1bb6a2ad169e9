"""A position proves what was read up to it: changes of logs while nobody follows them."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import zstandard

from photon.adapters.contract import Framing
from photon.adapters.formats.json_objects import JsonObjects
from photon.adapters.formats.text_lines import TextLines
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.identity import PROOF_BYTES
from tests.unit.adapters.framings import Prefixed, prefixed
from tests.unit.adapters.logs.tails import Tail, begun

Pack = Callable[[bytes], bytes]
PACKS: dict[str, Pack] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress,
                          ".bz2": bz2.compress, ".xz": partial(lzma.compress, preset=0)}  # fmt: skip


def varints(lines: list[bytes]) -> bytes:
    return b"".join(bytes([len(line)]) + line for line in lines)


def with_ends(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def quoted(lines: list[bytes]) -> bytes:
    return b"".join(b'"' + line + b'\nsecond",x\n' for line in lines)


def zeek(lines: list[bytes]) -> bytes:
    return b"#fields\ta\n" + b"".join(b"#open\n" * (at % 3 == 0) + line + b"\n" for at, line in enumerate(lines))


def cri(lines: list[bytes]) -> bytes:
    head = b"2024-03-01T10:00:00.5Z stdout "
    return b"".join(head + b"P " + line[:9] + b"\n" + head + b"F " + line[9:] + b"\n" for line in lines)


SHAPES: dict[str, tuple[Framing, Callable[[list[bytes]], bytes]]] = {
    "lines": (Framing(), with_ends),
    "quoted": (Framing(kind="quoted"), quoted),
    "zeek": (Framing(kind="zeek"), zeek),
    "cri": (Framing(kind="cri"), cri),
    "varint": (Framing(kind="varint"), varints),
    "own": (Prefixed(), prefixed),
    "utf-16": (TextLines(encoding="utf-16"), lambda lines: with_ends(lines).decode().encode("utf-16")),
    "json": (JsonObjects(), lambda lines: b"[" + b",\n".join(b'{"a":"' + line + b'"}' for line in lines)),
}


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("few", [3, 300])
def test_replaced_between_two_runs_by_a_longer_one_that_begins_alike(
    tmp_path: Path, shape: str, suffix: str, few: int
) -> None:
    framing, made = SHAPES[shape]
    log = tmp_path / f"a{suffix}"
    log.write_bytes(PACKS[suffix](made([b"%06d %030d" % (n, n) for n in range(few)])))
    first = Tail(tmp_path, framing=framing)
    assert len(first.read()) == few
    log.unlink()
    log.write_bytes(PACKS[suffix](made([b"%06d %030d" % (n, n and -n) for n in range(2 * few)])))
    second = Tail(tmp_path, first.follower.positions(), framing=framing)
    assert len(second.read()) == 2 * few
    what = f"was read up to byte {first.blocks[-1].end}, and now holds different bytes before it"
    assert [str(each) for each in second.problems] == [f"a{suffix}: {what}: it is read again from its start"]
    assert Tail(tmp_path, second.follower.positions(), framing=framing).read() == []


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_block_proves_its_end_and_a_log_that_goes_on_or_is_compressed_is_itself(
    tmp_path: Path, shape: str, suffix: str
) -> None:
    framing, made = SHAPES[shape]
    lines = [b"%06d %0100d" % (n, n) for n in range(300)]
    log = tmp_path / "a"
    log.write_bytes(made(lines[:40]))
    tail = Tail(tmp_path, framing=framing)
    for to in (41, 42, 150, 151, 290):
        tail.read()
        log.write_bytes(made(lines[:to]))
    tail.read()
    assert not tail.problems
    positions = [LogPosition(b.identity, "a", b.end, b.file.header, b.proof) for b in tail.blocks]
    log.unlink()
    (tmp_path / f"a{suffix}").write_bytes(PACKS[suffix](made(lines)))
    assert len({position.proof for position in positions}) == len(positions)
    for position in positions:
        again = Tail(tmp_path, [position], framing=framing)
        read = again.read()
        assert (len(read), again.kinds()) == (len(lines) - sum(b.data.count(b"\n") for b in tail.blocks
                                              if b.end <= position.offset), [])  # fmt: skip


def test_positions_of_a_version_that_kept_no_proof_are_read_on_and_gain_one(tmp_path: Path) -> None:
    _, tail = begun(tmp_path, b"1\n2\n3\n")
    (position,) = tail.follower.positions()
    assert position.proof
    old = Tail(tmp_path, [replace(position, offset=4, proof=b"")])
    assert old.read() == [b"3"]
    assert not old.problems
    assert old.follower.positions() == [position]
    assert old.blocks[-1].proof == position.proof


def test_what_is_written_in_two_pieces_with_an_end_that_comes_late_is_proved_as_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "a"
    log.write_bytes(b"1\n2")
    tail = Tail(tmp_path)
    assert tail.read(final=True) == [b"1", b"2"]
    log.write_bytes(b"1\n2\n")
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read() == []
    log.write_bytes(b"1\n2\n3\n")
    last = Tail(tmp_path, again.follower.positions())
    assert last.read() == [b"3"]
    assert not tail.problems + again.problems + last.problems


def test_what_is_before_the_window_is_not_proved(tmp_path: Path) -> None:
    """Documented in docs/dispatcher.md."""
    log, tail = begun(tmp_path, b"1\nx\n" + b"y\n" * PROOF_BYTES)
    log.write_bytes(b"1\nz\n" + b"y\n" * PROOF_BYTES + b"2\n")
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read() == [b"2"]
    assert not again.problems
