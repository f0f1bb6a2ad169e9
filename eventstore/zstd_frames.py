"""Where the frames of a Zstandard file begin, without inflating it: by its seek table, else by walking headers. Pure.

A file in the *seekable format* ends with a skippable frame that lists the sizes of all frames. In others each frame's
header may say how much it holds, and three bytes at each block say where the next block begins: a walk reads some
bytes in each 128 KiB of content. Where a frame does not say its size the walk ends; what follows is found by
inflating up to there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import zstandard

from photon.adapters.logs.zstd_source import NotZstd, read_frame_header

FrameBegin = tuple[int, int]
"""(uncompressed, compressed) offset of a frame's first byte."""
ReadAt = Callable[[int, int], bytes]
"""(offset, length) in the compressed file -> bytes, fewer at its end."""

_HEADER_BYTES_MAX = 18
_SEEK_FOOTER = struct.Struct("<IBI")  # number of frames, descriptor, magic
_SEEKABLE_MAGIC = 0x8F92EAB1
_SKIPPABLE_SEEK_MAGIC = 0x184D2A5E
_CHECKSUMS, _RESERVED_BITS = 0x80, 0x7C
SEEK_FRAMES_MAX = 1 << 20
"""A seek table of more frames is left aside."""
_RLE = 1


def frame_begins(read: ReadAt, size: int) -> Iterator[FrameBegin]:
    """Of frames of data, ascending, the first one at (0, 0) left out. ``size``: of the compressed file."""
    table = _seek_table(read, size)
    yield from _walk(read) if table is None else table


def _seek_table(read: ReadAt, size: int) -> list[FrameBegin] | None:
    footer = read(size - _SEEK_FOOTER.size, _SEEK_FOOTER.size) if size > _SEEK_FOOTER.size + 8 else b""
    if len(footer) < _SEEK_FOOTER.size:
        return None
    count, descriptor, magic = _SEEK_FOOTER.unpack(footer)
    if magic != _SEEKABLE_MAGIC or descriptor & _RESERVED_BITS or count > SEEK_FRAMES_MAX:
        return None
    entry = struct.Struct("<III" if descriptor & _CHECKSUMS else "<II")
    content = count * entry.size + _SEEK_FOOTER.size
    begin = size - content - 8
    if begin < 0:
        return None
    head = read(begin, 8 + content)
    if len(head) < 8 + content or struct.unpack_from("<II", head) != (_SKIPPABLE_SEEK_MAGIC, content):
        return None
    places, made, taken = [], 0, 0
    for each in entry.iter_unpack(head[8 : 8 + count * entry.size]):
        made, taken = made + each[1], taken + each[0]
        places.append((made, taken))
    return places[:-1] if taken == begin else None


def _walk(read: ReadAt) -> Iterator[FrameBegin]:
    made = taken = 0
    while True:
        head = read(taken, _HEADER_BYTES_MAX)
        try:
            header = read_frame_header(head)
        except NotZstd:
            return
        if header is None:
            return
        if made and header.skip < 0:
            yield made, taken
        if header.skip >= 0:
            taken += header.length + header.skip
            continue
        content = zstandard.frame_content_size(head)
        end = None if content < 0 else _blocks_end(read, taken + header.length)
        if end is None:
            return
        made, taken = made + content, end + (4 if header.checksum else 0)


def _blocks_end(read: ReadAt, at: int) -> int | None:
    """The offset after a frame's last block; None where the file ends before."""
    while True:
        head = read(at, 3)
        if len(head) < 3:
            return None
        bits = int.from_bytes(head, "little")
        at += 3 + (1 if bits >> 1 & 3 == _RLE else bits >> 3)
        if bits & 1:
            return at
