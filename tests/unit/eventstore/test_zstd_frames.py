"""Frames of a Zstandard file are found without inflating it, and entered in any order."""

from __future__ import annotations

import random
import struct
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import zstandard

from photon.adapters.logs.zstd_source import ZstdSource
from photon.eventstore.log_files import PAGE_BYTES, Pages, frame_begins, open_log

SEEKABLE = 0x8F92EAB1


def parts(count: int = 24, seed: int = 3) -> list[bytes]:
    rng = random.Random(seed)
    return [
        b"".join(b"%x line\n" % rng.getrandbits(40) for _ in range(rng.randrange(9000, 20_000))) for _ in range(count)
    ]


def packed(pieces: list[bytes], kind: str) -> list[bytes]:
    """One or more frames for each piece."""
    if kind == "unsized":
        frames = []
        for piece in pieces:
            stream = zstandard.ZstdCompressor(level=1).compressobj()
            frames.append(stream.compress(piece) + stream.flush())
        return frames
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=kind == "checked")
    frames = [compressor.compress(piece) for piece in pieces]
    if kind == "pzstd":  # a skippable frame before each says how long it is
        frames = [struct.pack("<III", 0x184D2A50, 4, len(frame)) + frame for frame in frames]
    if kind == "seekable":
        entries = b"".join(struct.pack("<II", len(f), len(p)) for f, p in zip(frames, pieces, strict=True))
        body = entries + struct.pack("<IBI", len(frames), 0, SEEKABLE)
        frames[-1] += struct.pack("<II", 0x184D2A5E, len(body)) + body
    return frames


def begins(data: bytes) -> list[tuple[int, int]]:
    return list(frame_begins(lambda at, length: data[at : at + length], len(data)))


@pytest.mark.parametrize("kind", ["plain", "checked", "seekable", "pzstd"])
def test_each_frame_s_begin_is_found(kind: str) -> None:
    pieces = parts()
    frames = packed(pieces, kind)
    skipped = 12 if kind == "pzstd" else 0
    made = list(accumulate(map(len, pieces)))[:-1]
    taken = [at + skipped for at in accumulate(map(len, frames))][:-1]
    assert begins(b"".join(frames)) == list(zip(made, taken, strict=True))


def test_what_says_nothing_or_is_cut_or_damaged_ends_the_walk() -> None:
    pieces = parts(6)
    assert begins(b"".join(packed(pieces, "unsized"))) == []
    frames = packed(pieces, "plain")
    whole = b"".join(frames)
    all_of_them = begins(whole)
    assert len(all_of_them) == 5
    rng = random.Random(1)
    for _ in range(200):
        cut = rng.randrange(len(whole))
        assert begins(whole[:cut]) == all_of_them[: len(begins(whole[:cut]))]
    assert begins(whole + b"junk") == [*all_of_them, (sum(map(len, pieces)), len(whole))][:5]
    table = b"".join(packed(pieces, "seekable"))
    assert begins(table[:-1] + b"x") == all_of_them  # no seek table, so it is walked
    assert begins(b"") == []


@pytest.mark.parametrize("kind", ["plain", "seekable", "pzstd", "unsized"])
def test_far_places_are_read_without_what_is_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pieces = parts()
    data = b"".join(pieces)
    assert len(data) > 20 * PAGE_BYTES
    path = tmp_path / "a.log.zst"
    path.write_bytes(b"".join(packed(pieces, kind)))
    inflated = 0
    more = ZstdSource._more

    def counted(self: ZstdSource, limit: int) -> bytes:
        nonlocal inflated
        piece = more(self, limit)
        inflated += len(piece)
        return piece

    monkeypatch.setattr(ZstdSource, "_more", counted)
    log = open_log(path, Pages(4 * PAGE_BYTES), 1)
    assert log.read(len(data) - 500, 500) == data[-500:]
    far = inflated
    rng = random.Random(2)
    for _ in range(60):
        at, length = rng.randrange(len(data)), rng.randrange(1, 5000)
        assert log.read(at, length) == data[at : at + length]
    longest = max(map(len, pieces))
    if kind != "unsized":
        assert far <= longest + PAGE_BYTES
        assert inflated <= 61 * 2 * (longest + PAGE_BYTES)
    for begin, end in pairwise(range(0, len(data), 50_000)):
        assert log.read(begin, end - begin) == data[begin:end]
    with path.open("ab") as file:
        file.write(zstandard.ZstdCompressor().compress(b"more\n"))
    assert log.read(len(data), 10) == b"more\n"
    log.close()


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
