"""The keys of a slice of a primary log and the offsets of their records, in a separate file. A search for some keys
reads this file and those records instead of the whole log. Needs no pyspark.

The file has a line of JSON (``_Head``), then for n records the low 32 bits of each hash, its next 8 bits, and the
distances between the offsets (uint64, Zstandard); little-endian. It is valid for a log that is unchanged since it was
read, or has only grown: its identity (name and first record) and the bytes before the slice's end must be the same,
and the last record that begins in the slice must have been whole. Otherwise the slice is read again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import xxhash
import zstandard

from photon.adapters.logs.elsewhere import is_final, open_stored, size_and_time
from photon.adapters.logs.links import LogPath
from photon.adapters.logs.slices import READ_BYTES, Slice
from photon.batch.columns import I64
from photon.config.versioned_file import decoded
from photon.spark.key_filter import U64, KeyFilter

SLICE_BYTES = 16 << 20  # logs are always cut at its multiples, so that slices are the same each time
TAIL_BYTES = 4096
SUFFIX = ".keys"
_LOW = np.uint64(0xFFFFFFFF)


class _Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    end: int | None
    size: int
    mtime_ns: int
    tail: str  # digest of the log's bytes before ``end``; empty: the slice may gain records when the log grows
    records: int
    payload: str  # digest of the rest of the file


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The index of n records, as columns."""

    hashes: U64  # of the keys (``key_filter.hashes_of``)
    offsets: I64
    bytes: int  # of the file

    def parts(self, part: Slice, wanted: KeyFilter) -> list[Slice]:
        """Returns the parts of slice ``part`` that hold wanted keys; adjacent records are merged."""
        hits = self.offsets[wanted.holds(self.hashes)]
        if not len(hits) or part.end is None:
            return [part] if len(hits) else []
        cuts = np.flatnonzero(np.diff(hits) > READ_BYTES) + 1
        return [replace(part, begin=int(some[0]), end=int(some[-1]) + 1) for some in np.split(hits, cuts)]


def index_path(directory: Path, datacentre: str, part: Slice) -> Path:
    """Returns the path of a slice's index. When a log grows, the index of its last slice is replaced."""
    return directory / f"{datacentre}-{part.log.identity}-{part.begin}{SUFFIX}"


def read_index(path: Path, log: Path | LogPath, part: Slice) -> KeyIndex | None:
    """Reads a slice's index; ``None`` if there is no valid one. ``log``: the file as it is now."""
    try:
        first, _, rest = path.read_bytes().partition(b"\n")
        head, (size, mtime_ns) = decoded(first, _Head), size_and_time(log)
        if head.end != part.end or head.payload != xxhash.xxh3_128_hexdigest(rest):
            return None
        grown = size > head.size and part.end is not None and not is_final(log)
        if (size, mtime_ns) != (head.size, head.mtime_ns) and not (grown and _tail(log, part.end or 0) == head.tail):
            return None
    except (OSError, msgspec.MsgspecError):
        return None
    count = head.records
    low, high = np.frombuffer(rest, "<u4", count), np.frombuffer(rest, "u1", count, 4 * count)
    steps = np.frombuffer(zstandard.decompress(rest[5 * count :], max_output_size=8 * count), "<u8")
    hashes = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    return KeyIndex(hashes, np.cumsum(steps).astype(np.int64), len(first) + 1 + len(rest))


def write_index(path: Path, log: Path | LogPath, part: Slice, found: Sequence[tuple[U64, I64]], reached: int) -> None:
    """Writes a slice's index. If that fails, a later run does it. ``found``: hashes and offsets of the slice's
    records, in order; ``reached``: the end of the last one."""
    hashes = np.concatenate([np.empty(0, np.uint64), *(each for each, _ in found)])
    offsets = np.concatenate([np.empty(0, np.int64), *(each for _, each in found)])
    steps = np.diff(offsets, prepend=0).astype("<u8")
    rest = b"".join([(hashes & _LOW).astype("<u4").tobytes(), (hashes >> np.uint64(32)).astype("u1").tobytes(),
                     zstandard.compress(steps.tobytes())])  # fmt: skip
    with suppress(OSError):
        has_tail = part.end is not None and reached >= part.end and not is_final(log)
        head = _Head(
            end=part.end, size=part.log.size, mtime_ns=part.log.mtime_ns,
            tail=_tail(log, part.end or 0) if has_tail else "", records=len(hashes),
            payload=xxhash.xxh3_128_hexdigest(rest),
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        building = path.with_name(f".{path.name}.{os.getpid()}")
        building.write_bytes(msgspec.json.encode(head) + b"\n" + rest)
        building.replace(path)


def _tail(log: Path | LogPath, end: int) -> str:
    with closing(open_stored(log)) as file:
        return xxhash.xxh3_128_hexdigest(file.read(max(end - TAIL_BYTES, 0), min(end, TAIL_BYTES)))


def stale(directory: Path, logs: set[tuple[str, str]]) -> Iterator[Path]:
    """Yields index files of logs other than ``logs`` (datacentre, identity), and unfinished ones."""
    kept = {f"{datacentre}-{identity}" for datacentre, identity in logs}
    for path in directory.iterdir() if directory.is_dir() else ():
        if not path.name.endswith(SUFFIX) or path.name.rpartition("-")[0] not in kept:
            yield path


__all__ = ["SLICE_BYTES", "KeyIndex", "index_path", "read_index", "stale", "write_index"]
