"""Uncompressed bytes of plain and gzip files."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

from photon.adapters.logs.reader import open_source


def content(size: int) -> bytes:
    r = random.Random(7)
    return b"".join(b"%x line\n" % r.getrandbits(60) for _ in range(size))


def test_long_runs_come_out_whole(tmp_path: Path) -> None:
    data = b"a" * 5_000_000  # thousandfold compression: the inflater holds output back beyond each limit
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    source = open_source(tmp_path / "a.gz")
    assert source.read(0, 6_000_000) == data
    assert not source.cut_short()
    assert source.consumed() == source.size()
    source.close()


def test_damaged_gzip_is_readable_up_to_the_damage(tmp_path: Path) -> None:
    data = content(20_000)
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
