"""Searches all output files for records of lost events, before their ids are given back. A verification reads only
files in manifests, but a record may be in an unlisted file, after a wrong checksum, or in a copy, and a reader of
that file already has the event.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec
import numpy as np

from photon.batch.columns import I64, Mask
from photon.config.disk import Disk
from photon.outputs.every_file import FoundFile, whole_lines
from photon.spark.recover.planning import ReportedProblem

IDS_AT_ONCE = 4_000_000  # ids searched for in one pass over the files: 32 MB of hashes
PLACES_MAX = 4  # places kept of one event


class WrittenAt(NamedTuple):
    """Where a record was found. ``name``: the file's name relative to the output, as in a manifest; ``path``: its
    path."""

    name: str
    path: str
    offset: int  # of uncompressed bytes


class _Named(msgspec.Struct, frozen=True, gc=False):
    event_id: str | None = None
    event_id_raw_base64: str | None = None


_DECODER = msgspec.json.Decoder(_Named)
_decode, _decode_lines = _DECODER.decode, _DECODER.decode_lines
Places = Mapping[bytes, Sequence[WrittenAt]]  # event id -> places of its records


def search(disk: Disk, files: Sequence[FoundFile], ids: Iterable[bytes]) -> Places:
    """Reads all files once for every IDS_AT_ONCE ids, in blocks, and skips unreadable parts. Needs 8 bytes of memory
    per id, and more for each record found."""
    found: dict[bytes, list[WrittenAt]] = {}
    left = iter(ids)
    while (hashes := np.unique(np.fromiter(map(hash, islice(left, IDS_AT_ONCE)), np.int64))).size:
        for file in files:
            for event_id, at in _matches(disk, file, hashes):
                places = found.setdefault(event_id, [])  # only a hash collision if it is never used
                if len(places) < PLACES_MAX:
                    places.append(at)
    return found


def _matches(disk: Disk, file: FoundFile, hashes: I64) -> Iterator[tuple[bytes, WrittenAt]]:
    for lines in whole_lines(disk, file.path):
        if _may_hold(lines.data, hashes):
            named = list(_events_of(lines.data))
            for row in np.flatnonzero(_are_in(hashes, [event_id for _, event_id in named])).tolist():
                offset, event_id = named[row]
                yield event_id, WrittenAt(file.name, str(file.path), lines.offset + offset)


def _may_hold(block: bytes, hashes: I64) -> bool:
    """True if the block may have one of the events. Decodes all lines at once, without offsets, as most blocks have
    none."""
    try:
        said = _decode_lines(block)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return True
    if any(each.event_id_raw_base64 is not None for each in said):
        return True
    return bool(_are_in(hashes, [each.event_id.encode() for each in said if each.event_id is not None]).any())


def _are_in(hashes: I64, ids: Sequence[bytes]) -> Mask:
    told = np.fromiter(map(hash, ids), np.int64, len(ids))
    at = np.searchsorted(hashes, told)
    at[at == len(hashes)] = 0
    found: Mask = hashes[at] == told
    return found


def _events_of(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and event id of each line that names an event."""
    at = 0
    for line in block.split(b"\n"):
        try:
            said = _decode(line)
            if said.event_id is not None:
                yield at, said.event_id.encode()
            elif said.event_id_raw_base64 is not None:
                yield at, b64decode(said.event_id_raw_base64, validate=True)
        except (msgspec.MsgspecError, Base64Error, ValueError, RecursionError):
            pass
        at += len(line) + 1


def elsewhere(places: Places, finding: ReportedProblem) -> WrittenAt | None:
    """Returns a record of the event at a place that the finding does not name, if there is one."""
    own = finding.output_file, finding.output_offset
    return next((each for each in places.get(finding.event_id, ()) if (each.name, each.offset) != own), None)


def names_of(places: Places) -> frozenset[str]:
    """Returns the names of all files at these places."""
    return frozenset(each.name for each in chain.from_iterable(places.values()))
