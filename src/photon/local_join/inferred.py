"""The configuration that the logs of a join say themselves: bounded samples in, TOML out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from photon.adapters.inference import NOTHING, Inferred, Told, Unclear, infer, one_log
from photon.adapters.logs.discovery import check_directory, compile_patterns
from photon.adapters.logs.sampling import Sampled, sample
from photon.local_join.given import ALL, Given

FOREIGN = (4 << 20, 3_000)
"""Bytes and records that are looked at."""
PRIMARY = ((4 << 20, 12_000), (32 << 20, 100_000))
"""The second where the first is not enough."""
BEFORE = 0.75
"""So much of what is read of primary logs stands before the place where foreign ones are read."""


def inferred(primary: Given, foreign: Given, told: Told = NOTHING) -> Inferred | Unclear:
    """Foreign values are looked for among more and more of the primary records, until it is certain or the bound is
    met. Raises LogDirectoryError.
    """
    events = looked_at(foreign, *FOREIGN)
    if _may_be_one(primary, foreign) and _paths(primary, looked_at(primary, *FOREIGN)) & _paths(foreign, events):
        return one_log(events.records)
    for size, records in PRIMARY:
        known = looked_at(primary, size, records, before=BEFORE)
        written = known.written, events.written
        guess = infer(known.records, events.records, whole=known.whole, told=told, written=written)
        if isinstance(guess, Inferred) or known.whole:
            break
    return guess


def _may_be_one(primary: Given, foreign: Given) -> bool:
    one, other = primary.directory.resolve(), foreign.directory.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def _paths(logs: Given, seen: Sampled) -> set[Path]:
    return {logs.directory.resolve() / name.partition("/")[2] for name in seen.records}


def looked_at(logs: Given, size: int = FOREIGN[0], records: int = FOREIGN[1], *, before: float = 0.0) -> Sampled:
    """Names of files begin with their directory's: it says what the logs are about. Raises LogDirectoryError."""
    check_directory(logs.directory)
    found = sample(logs.directory, compile_patterns(logs.patterns or ALL), size=size, records=records, before=before)
    above = (part for part in reversed(logs.directory.absolute().parts) if any(map(str.isalpha, part)))
    root = next(above, "")
    return replace(found, records={f"{root}/{name}": records for name, records in found.records.items()})
