"""Chooses which records of a log get a sparse entry, and which an exact one. Pure.

Invariant: every record r of process p in a log has an exact (dense) entry, or follows the entry of p in that log with
the greatest timestamp <= r's, which is at most W older and begins at most M bytes before r. This holds because a
record not above its process's last one gets an exact entry and changes nothing else.

A canonical id is ``ServerIP:ProcessID:TimestampMicros`` and rises strictly within its process (paper, section 3.1). A
row key has fixed-width big-endian parts, so the order of the bytes is the order of ids:

    salt (1) | server ip (16, IPv4 mapped) | process id (4) | timestamp, microseconds (8)

The salt is a hash of the process: it spreads writers over a table's regions, and keeps a process, and so a range
scan, in one region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from photon import eventid
from photon.eventstore.file_map import SPARSE_BYTES, SPARSE_MICROS, MappedBlock, MapSettings
from photon.eventstore.index import I64, U64

SALTS = 64
PREFIX_BYTES = 21
_PROCESSES_REMEMBERED = 1 << 16


@lru_cache(maxsize=_PROCESSES_REMEMBERED)
def process_prefix(process: bytes) -> bytes | None:
    """Returns the row key prefix of ``ServerIP:ProcessID``; ``None`` if it is not written canonically.

    Two spellings of one process would share row keys but be different keys.
    """
    parts = eventid.process(process)
    if parts is None:
        return None
    ip, pid = parts
    packed = ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed
    body = packed + pid.to_bytes(4, "big")
    return bytes([blake2b(body, digest_size=1).digest()[0] % SALTS]) + body


def parse_event_id(key: bytes) -> tuple[bytes, int] | None:
    """Returns (row key prefix of the process, microseconds); ``None`` if the key is not a canonical id."""
    parts = eventid.split(key)
    if parts is None:
        return None
    prefix = process_prefix(parts[0])
    return None if prefix is None else (prefix, parts[1])


def row_key(prefix: bytes, micros: int) -> bytes:
    """Returns the row key of an id. Negative times, as at a range's start, become 0."""
    return prefix + max(0, micros).to_bytes(8, "big")


def micros_of(row: bytes) -> int:
    return int.from_bytes(row[PREFIX_BYTES:], "big")


PROCESS_STATES_MAX = 1 << 17  # in memory over all logs; beyond it they are read from the catalogue again


@dataclass(slots=True)
class ProcessState:
    """The state of one process in one log, in microseconds and bytes."""

    last_micros: int
    entry_micros: int
    entry_offset: int


@dataclass(frozen=True, slots=True)
class SparseEntry:
    prefix: bytes
    micros: int
    offset: int


@dataclass(slots=True)
class SparseAdditions:
    """One block's new sparse entries, and the indexes of records that need exact entries."""

    entries: list[SparseEntry] = field(default_factory=list)
    exact: list[int] = field(default_factory=list)
    touched: set[bytes] = field(default_factory=set)  # prefixes of the processes whose state has changed
    repeats: int = 0  # exact ones whose id equals the last of its process: certain duplicates


def sparse_additions(
    keys: Sequence[bytes],
    offsets: Sequence[int],
    states: dict[bytes, ProcessState],
    load: Callable[[bytes], ProcessState | None],
    *,
    window_micros: int = SPARSE_MICROS,
    window_bytes: int = SPARSE_BYTES,
) -> SparseAdditions:
    """Walks one block's records in log order.

    ``states``: this log's states by row key prefix; changed. ``load`` returns a missing state, or ``None`` for a
    process that was never seen in this log.
    """
    out = SparseAdditions()
    for index, key in enumerate(keys):
        parsed = parse_event_id(key)
        if parsed is None:
            out.exact.append(index)
            continue
        prefix, micros = parsed
        state = states.get(prefix) or load(prefix)
        if state is not None:
            states[prefix] = state
        if state is None:
            out.touched.add(prefix)
            states[prefix] = ProcessState(micros, micros, offsets[index])
            out.entries.append(SparseEntry(prefix, micros, offsets[index]))
        elif micros <= state.last_micros:
            out.exact.append(index)
            out.repeats += micros == state.last_micros
        else:
            out.touched.add(prefix)
            state.last_micros = micros
            if micros - state.entry_micros > window_micros or offsets[index] - state.entry_offset >= window_bytes:
                state.entry_micros, state.entry_offset = micros, offsets[index]
                out.entries.append(SparseEntry(prefix, micros, offsets[index]))
    return out


class ProcessStates:
    """A cache of one map's process states, by log. Use it only on the thread that adds to the map."""

    def __init__(self, settings: MapSettings, load: Callable[[int, bytes], ProcessState | None]) -> None:
        """``load`` reads the durable state of a (log, prefix) that is not in memory."""
        self._settings = settings
        self._load = load
        self._states: dict[int, dict[bytes, ProcessState]] = {}

    def add(self, log: int, block: MappedBlock) -> tuple[SparseAdditions, dict[bytes, ProcessState]]:
        if sum(map(len, self._states.values())) > PROCESS_STATES_MAX:
            self._states.clear()
        states = self._states.setdefault(log, {})
        additions = sparse_additions(
            block.keys,
            block.starts.tolist(),
            states,
            lambda prefix: self._load(log, prefix),
            window_micros=self._settings.window_micros,
            window_bytes=self._settings.window_bytes,
        )
        return additions, {prefix: states[prefix] for prefix in additions.touched}


def exact_entries(block: MappedBlock, additions: SparseAdditions) -> tuple[U64, I64]:
    """Returns (hashes, offsets in the log) of the records that need exact entries, ascending by hash."""
    exact = np.zeros(len(block.keys), dtype=bool)
    exact[additions.exact] = True
    chosen = exact[block.order]
    return block.hashes[chosen], block.starts[block.order[chosen]]
