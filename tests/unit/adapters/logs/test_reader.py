"""Uncompressed bytes of plain and gzip files."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

from photon.adapters.logs.reader import open_source


def _content(size: int) -> bytes:
    r = random.Random(7)
    return b"".join(b"%x line\n" % r.getrandbits(60) for _ in range(size))


def test_gzip_gives_the_same_bytes_as_the_plain_file_forwards_and_back(tmp_path: Path) -> None:
    data = _content(40_000)
    (tmp_path / "p").write_bytes(data)
    third = len(data) // 3
    members = gzip.compress(data[:third]) + b"\0" * 100 + gzip.compress(b"") + gzip.compress(data[third:], 1)
    (tmp_path / "p.gz").write_bytes(members)
    plain, packed = open_source(tmp_path / "p"), open_source(tmp_path / "p.gz")
    r = random.Random(3)
    for at, length in [(0, 10), (500, 100_000), (len(data) - 5, 100), (20, 7), (len(data) + 9, 3)] + [
        (r.randrange(len(data)), r.randrange(1 << 18)) for _ in range(20)
    ]:
        assert packed.read(at, length) == plain.read(at, length) == data[at : at + length]
    assert not packed.damage()
    plain.close()
    packed.close()


def test_long_runs_come_out_whole(tmp_path: Path) -> None:
    data = b"a" * 5_000_000  # thousandfold compression: the inflater holds output back beyond each limit
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    source = open_source(tmp_path / "a.gz")
    assert source.read(0, 6_000_000) == data
    assert not source.cut_short()
    assert source.consumed() == source.size()
    source.close()


def test_gzip_cut_short_goes_on_when_the_rest_arrives(tmp_path: Path) -> None:
    data = _content(20_000)
    packed = gzip.compress(data)
    path = tmp_path / "x.gz"
    path.write_bytes(packed[: len(packed) // 2])
    source = open_source(path)
    first = source.read(0, 1 << 20)
    assert data.startswith(first)
    assert 0 < len(first) < len(data)
    assert source.cut_short()
    with path.open("ab") as f:
        f.write(packed[len(packed) // 2 :])
    assert source.read(len(first), 1 << 20) == data[len(first) :]
    assert not source.cut_short()
    source.close()


def test_damaged_gzip_is_readable_up_to_the_damage(tmp_path: Path) -> None:
    data = _content(20_000)
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(data[:100_000]) + packer.flush(zlib.Z_FULL_FLUSH)
    path = tmp_path / "x.gz"
    path.write_bytes(packed + b"\xff" * 50)
    source = open_source(path)
    assert source.read(0, 1 << 20) == data[:100_000]
    assert "gzip" in source.damage()
    source.close()
    path.write_bytes(b"not gzip at all\n")
    source = open_source(path)
    assert source.read(0, 10) == b""
    assert source.damage()
    source.close()
