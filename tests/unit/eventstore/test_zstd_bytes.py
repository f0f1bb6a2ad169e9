"""Random look-ups into Zstandard logs: the bytes of the plain file, pages kept, growth seen."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import zstandard

from photon.eventstore.log_files import PAGE_BYTES, Pages, open_log


def test_reads_anywhere_as_from_the_plain_file(tmp_path: Path) -> None:
    r = random.Random(5)
    data = b"".join(b"%x line\n" % r.getrandbits(40) for _ in range(180_000))
    assert len(data) > 2 * PAGE_BYTES
    packer = zstandard.ZstdCompressor(level=1)
    cuts = [0, 700_000, 700_010, 1_500_000, len(data)]
    path = tmp_path / "a.log.zst"
    path.write_bytes(b"".join(packer.compress(data[a:b]) for a, b in pairwise(cuts)))
    log = open_log(path, Pages(), 1)
    for at, length in [(0, 20), (len(data) - 9, 50), (5, 2 * PAGE_BYTES), (PAGE_BYTES - 3, 6)] + [
        (r.randrange(len(data)), r.randrange(1, 3000)) for _ in range(40)
    ]:
        assert log.read(at, length) == data[at : at + length]
    with path.open("ab") as more:
        more.write(packer.compress(b"more\n"))
    assert log.read(len(data), 10) == b"more\n"
    assert not log.unlinked()
    path.unlink()
    assert log.unlinked()
    log.close()


def test_damaged_gives_what_the_follower_gave_out(tmp_path: Path) -> None:
    path = tmp_path / "a.log.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"1\n2\n") + b"garbage")
    log = open_log(path, Pages(), 1)
    assert log.read(2, 10) == b"2\n"
    assert log.read(4, 10) == b""
    log.close()
