"""Every file of an output, and the lines that can still be read of it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.outputs.every_file import CHECKSUM_WRONG, files_below, whole_lines
from photon.outputs.published import GONE

DATA = b"".join(b'{"line":%d}\n' % (n * n) for n in range(3000))
PACKED = gzip.compress(DATA)


def read(path: Path) -> tuple[bytes, str | None]:
    found = whole_lines(RealDisk(), path)
    blocks = list(found)
    data = b"".join(block.data for block in blocks)
    assert [block.offset for block in blocks] == [data.find(block.data) for block in blocks]
    assert (found.lines, found.end) == (data.count(b"\n"), len(data))
    return data, found.trouble


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at:][1:]


def test_a_file_that_is_whole(tmp_path: Path) -> None:
    plain, packed, members = (tmp_path / name for name in ("a.jsonl", "a.jsonl.gz", "b.jsonl.gz"))
    plain.write_bytes(DATA)
    packed.write_bytes(PACKED)
    members.write_bytes(gzip.compress(DATA[:777]) + b"\0\0" + gzip.compress(DATA[777:]))
    for path in (plain, packed, members):
        assert read(path) == (DATA, None)


@pytest.mark.parametrize("at", [-8, -6, -4, -1])
def test_a_wrong_checksum_or_length_loses_no_line(tmp_path: Path, at: int) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(flipped(PACKED, len(PACKED) + at))
    assert read(path) == (DATA, CHECKSUM_WRONG)
    first = gzip.compress(DATA[:777])
    path.write_bytes(flipped(first, len(first) + at) + gzip.compress(DATA[777:]))
    assert read(path) == (DATA, CHECKSUM_WRONG), "the next member is read all the same"


@given(st.integers(0, len(PACKED) - 1))
def test_whole_lines_before_a_cut_are_read(tmp_path_factory: pytest.TempPathFactory, end: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl.gz"
    path.write_bytes(PACKED[:end])
    there = zlib.decompressobj(31).decompress(PACKED[:end])
    trouble = "is cut short" if end else None
    assert read(path) == (there[: there.rfind(b"\n") + 1], trouble)


def test_lines_before_damage_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    half = len(PACKED) // 2
    path.write_bytes(PACKED[:half] + bytes(64) + PACKED[half + 64 :])
    data, trouble = read(path)
    whole = zlib.decompressobj(31).decompress(PACKED[:half])
    assert data.startswith(whole[: whole.rfind(b"\n") + 1])
    assert (trouble or "").startswith("is damaged")


def test_a_line_without_end_and_a_file_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(DATA + b"half a li")
    assert read(path) == (DATA, "has an unfinished last line")
    assert read(tmp_path / "b.jsonl") == (b"", GONE)


def test_every_file_whether_named_or_not(tmp_path: Path) -> None:
    names = ["joined/e-000001.jsonl.gz", "joined/e-000002.jsonl", "joined/e-000002.jsonl.gz", "joined/copies/x.jsonl",
             "joined/e-000003.jsonl.gz.tmp", "joined/.e-000004.jsonl.gz", "joined/readme.txt", "late/d-000001.jsonl",
             "other/z.jsonl"]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}\n")
    found = files_below(RealDisk(), tmp_path, ("joined", "late", "rejected"))
    assert [(each.kind, each.name, str(each.path.relative_to(tmp_path)), each.bytes) for each in found] == [
        ("joined", "joined/copies/x.jsonl", "joined/copies/x.jsonl", 3),
        ("joined", "joined/e-000001.jsonl", "joined/e-000001.jsonl.gz", 3),
        ("joined", "joined/e-000002.jsonl", "joined/e-000002.jsonl", 3),
        ("late", "late/d-000001.jsonl", "late/d-000001.jsonl", 3),
    ]
