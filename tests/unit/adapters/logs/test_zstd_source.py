"""Zstandard files: the same bytes as the plain file, truncated and damaged ones, and bounds on memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.logs import zstd_source
from photon.adapters.logs.reader import open_source
from photon.adapters.logs.zstd_source import NotZstd, ZstdSource, read_frame_header
from tests.unit.adapters.logs.tails import Tail, append
from tests.unit.adapters.logs.test_reader import content


def pack(data: bytes, *, level: int = 3, checksum: bool = True, size: bool = True) -> bytes:
    packer = zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=size)
    return packer.compress(data) if size else packer.compressobj().compress(data) + b""


def stream(data: bytes, *, checksum: bool = False) -> bytes:
    """One frame of unknown size, as a pipe makes it."""
    packer = zstandard.ZstdCompressor(write_checksum=checksum).compressobj()
    return packer.compress(data) + packer.flush()


SKIPPABLE = (0x184D2A57).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"


def frames(data: bytes, rest: bytes) -> bytes:
    return SKIPPABLE + pack(data) + pack(b"") + SKIPPABLE + stream(rest, checksum=True) + SKIPPABLE


def members(data: bytes, rest: bytes) -> bytes:
    return gzip.compress(data) + b"\0" * 100 + gzip.compress(b"") + gzip.compress(rest, 1)


def two(pack: Callable[[bytes], bytes]) -> Callable[[bytes, bytes], bytes]:
    return lambda data, rest: pack(data) + bytes(100) + pack(b"") + pack(rest)


@pytest.mark.parametrize(
    ("suffix", "packed_of"),
    [("zst", frames), ("gz", members), ("bz2", two(bz2.compress)), ("xz", two(lzma.compress))],
)
def test_gives_the_same_bytes_as_the_plain_file_forwards_and_back(
    tmp_path: Path, suffix: str, packed_of: Callable[[bytes, bytes], bytes]
) -> None:
    data = content(40_000)
    (tmp_path / "p").write_bytes(data)
    third = len(data) // 3
    (tmp_path / f"p.{suffix}").write_bytes(packed_of(data[:third], data[third:]))
    plain, packed = open_source(tmp_path / "p"), open_source(tmp_path / f"p.{suffix}")
    assert packed.compressed
    r = random.Random(3)
    places = [(0, 10), (500, 100_000), (len(data) - 5, 100), (20, 7), (len(data) + 9, 3)]
    for at, length in places + [(r.randrange(len(data)), r.randrange(1 << 18)) for _ in range(20)]:
        assert packed.read(at, length) == plain.read(at, length) == data[at : at + length]
    assert packed.read(len(data) - 1, 10) == data[-1:]
    assert (packed.damage(), packed.cut_short(), packed.consumed()) == ("", False, packed.size())
    plain.close()
    packed.close()


@given(
    st.lists(st.tuples(st.binary(max_size=400), st.integers(0, 3)), max_size=5),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 900)), max_size=8),
    st.integers(1, 40),
)
@settings(deadline=None, max_examples=150)
def test_any_frames_read_in_any_order_however_small_the_reads(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bytes, int]], reads: list[tuple[int, int]], step: int
) -> None:
    path = tmp_path_factory.mktemp("z") / "x.zst"
    makers = [lambda d: pack(d), lambda d: pack(d, checksum=False), stream, lambda d: SKIPPABLE + pack(d, level=19)]
    path.write_bytes(b"".join(makers[kind](data) for data, kind in parts))
    whole = b"".join(data for data, _ in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zstd_source, "READ_BYTES", step)
        patch.setattr(zstd_source, "FRAME_SPACING_BYTES", 10)
        patch.setattr(zstd_source, "FRAMES_MAX", 3)
        source = ZstdSource(path)
        for at, length in reads:
            assert source.read(at, length) == whole[at : at + length]
        assert source.read(0, len(whole) + 1) == whole
        assert (source.damage(), source.cut_short()) == ("", False)
        source.close()


def test_reading_back_begins_at_the_nearest_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd_source, "FRAME_SPACING_BYTES", 1)
    path = tmp_path / "x.zst"
    data = content(20_000)
    path.write_bytes(b"".join(pack(data[at : at + 1000]) for at in range(0, len(data), 1000)))
    source = ZstdSource(path)
    assert source.read(0, len(data)) == data
    source.read(len(data) - 10, 10)
    inflated = 0
    real = source._content

    def counted() -> bytes:
        nonlocal inflated
        piece = real()
        inflated += len(piece)
        return piece

    monkeypatch.setattr(source, "_content", counted)
    assert source.read(100_500, 100) == data[100_500:100_600]
    assert 0 < inflated <= 2000
    source.close()


@pytest.mark.parametrize("suffix", ["zst", "gz"])
def test_cut_short_goes_on_when_the_rest_arrives(tmp_path: Path, suffix: str) -> None:
    data = content(60_000)
    packed = SKIPPABLE + stream(data, checksum=True) if suffix == "zst" else gzip.compress(data, 1)
    half, last = len(packed) // 2, len(packed)
    path = tmp_path / f"x.{suffix}"
    begins = (2, 7, 10, len(SKIPPABLE) + 3, len(SKIPPABLE) + 9) if suffix == "zst" else ()
    for cut in (*begins, half, last - 4, last - 1):
        path.write_bytes(packed[:cut])
        source = open_source(path)
        first = source.read(0, 1 << 21)
        assert data.startswith(first)
        assert 0 < len(first) < len(data) or cut != half
        assert source.cut_short(), cut
        assert not source.damage()
        with path.open("ab") as f:
            f.write(packed[cut:])
        assert first + source.read(len(first), 1 << 21) == data
        assert not source.cut_short()
        source.close()


def test_damaged_is_readable_up_to_the_damage(tmp_path: Path) -> None:
    data = content(20_000)
    path = tmp_path / "x.zst"
    for tail in (b"\xff" * 50, b"plain text\n"):
        path.write_bytes(pack(data) + tail)
        source = open_source(path)
        assert source.read(0, 1 << 20) == data
        assert source.damage() == (f"not valid zstd at compressed byte {len(pack(data))} (no frame begins here)")
        assert not source.cut_short()
        source.close()
    packed = bytearray(pack(data))
    packed[-1] ^= 1  # the check sum
    path.write_bytes(packed)
    source = open_source(path)
    assert source.read(0, 1 << 20) == data
    assert "zstd" in source.damage()
    source.close()


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(1, 255))
@settings(deadline=None, max_examples=300)
def test_any_flipped_byte_ends_in_damage_or_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, flip: int
) -> None:
    packed = bytearray(pack(data, checksum=True))
    packed[at % len(packed)] ^= flip
    path = tmp_path_factory.mktemp("z") / "x.zst"
    path.write_bytes(packed)
    source = ZstdSource(path)
    got = source.read(0, 1000)
    assert source.damage() or source.cut_short() or got in (data, b"")
    assert "\n" not in source.damage()
    source.close()


def test_windows_beyond_the_limit_and_dictionaries_are_refused(tmp_path: Path) -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    path = tmp_path / "x.zst"
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    path.write_bytes(packer.compress(content(1000)) + packer.flush())
    source = open_source(path)
    assert source.read(0, 10) == b""
    assert source.damage() == (
        "not valid zstd at compressed byte 0 (the frame needs a window of 128 MiB, the limit is 8; compress at level "
        "19 or below and without --long)"
    )
    source.close()
    allowed = zstandard.ZstdCompressionParameters.from_level(3, window_log=23)
    packer = zstandard.ZstdCompressor(compression_params=allowed).compressobj()
    path.write_bytes(packer.compress(b"x\n") + packer.flush())
    source = open_source(path)
    assert source.read(0, 10) == b"x\n"
    source.close()
    words = zstandard.ZstdCompressionDict(b"some words to begin with" * 50, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    with pytest.raises(NotZstd, match="dictionary"):
        read_frame_header(b"\x28\xb5\x2f\xfd\x21\x07\x00")
    path.write_bytes(zstandard.ZstdCompressor(dict_data=words).compress(b"some words to begin with, and more"))
    source = open_source(path)
    source.read(0, 100)
    assert source.damage()  # a dictionary without an id: only the blocks tell
    source.close()


def test_headers_agree_with_the_library() -> None:
    r = random.Random(11)
    for level in (1, 3, 9, 19):
        for length in (0, 1, 255, 256, 300, 65_535, 70_000, 3_000_000):
            data = r.randbytes(min(length, 1000)) * (length // 1000 + 1)
            for packed in (pack(data[:length], level=level), stream(data[:length])):
                header, known = read_frame_header(packed), zstandard.get_frame_parameters(packed)
                assert header is not None
                assert (header.window, header.checksum) == (known.window_size, known.has_checksum)
                for cut in range(header.length):
                    assert read_frame_header(packed[:cut]) is None


PROBE = """
import resource, sys
from pathlib import Path
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.reader import open_source
source = open_source(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
got = 0
while piece := source.read(got, 1 << 20):
    got += len(piece)
print(got, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_bomb_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zst"
    with path.open("wb") as out:
        packer = zstandard.ZstdCompressor(level=19).stream_writer(out, closefd=False)
        for _ in range(400):
            packer.write(b"a" * (1 << 20))
        packer.flush(zstandard.FLUSH_FRAME)
    assert path.stat().st_size < 100_000
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    got, grown_kib = map(int, done.stdout.split())
    assert got == 400 << 20
    assert grown_kib < 40 * 1024


def test_a_rolled_log_keeps_its_place_when_it_is_compressed_with_zstd(tmp_path: Path) -> None:
    log, rolled = tmp_path / "a.log", tmp_path / "a.log.1.zst"
    tail = Tail(tmp_path)
    append(log, b"1\n2\n")
    assert tail.read() == [b"1", b"2"]
    log.rename(tmp_path / "a.log.1")
    append(tmp_path / "a.log.1", b"3\n")
    rolled.write_bytes(pack((tmp_path / "a.log.1").read_bytes()))
    (tmp_path / "a.log.1").unlink()
    assert tail.read() == [b"3"]
    append(rolled, stream(b"4\n5\n"))
    assert tail.read() == [b"4", b"5"]
    assert not tail.problems
    tail.close()
    again = Tail(tmp_path, tail.follower.positions())
    append(rolled, stream(b"6\n")[:-1])
    assert again.read() == []
    append(rolled, stream(b"6\n")[-1:])
    assert again.read() == [b"6"]
    again.close()
