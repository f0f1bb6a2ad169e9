"""Infers a join's configuration from bounded samples of its logs, as TOML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from photon.adapters.inference import NOTHING, Inferred, Told, Unclear, infer, one_log
from photon.adapters.logs.discovery import check_directory, compile_patterns
from photon.adapters.logs.problems import LogDirectoryError
from photon.adapters.logs.sampling import Sampled, sample
from photon.local_join.given import ALL, Given

FOREIGN = (4 << 20, 3_000)  # maximum bytes and records to read
# The same for primary logs; the second limits apply if the first ones are not enough.
PRIMARY = ((4 << 20, 12_000), (32 << 20, 100_000))
BEFORE = 0.75  # share of the primary sample to take from before the position of the foreign sample
READABLE = "make it readable for this user, or leave it out"
NAMED = 3  # maximum number of unreadable files to list


def inferred(primary: Given, foreign: Given, told: Told = NOTHING) -> Inferred | Unclear:
    """Looks up values of foreign records among more and more primary records, until the result is certain or the
    limits are reached. Raises LogDirectoryError."""
    events = looked_at(foreign, *FOREIGN)
    if _may_be_one(primary, foreign) and _paths(primary, looked_at(primary, *FOREIGN)) & _paths(foreign, events):
        return one_log(events.records)
    for size, records in PRIMARY:
        known = looked_at(primary, size, records, before=BEFORE)
        written = known.written, events.written
        guess = infer(known.records, events.records, whole=known.whole, told=told, written=written)
        if isinstance(guess, Inferred) or known.whole:
            break
    unread = [f"not read: {each}" for each in (*_unread(primary, known), *_unread(foreign, events))]
    if isinstance(guess, Inferred):
        return replace(guess, explanation=(*guess.explanation, *unread))
    return replace(guess, problem="; ".join((guess.problem, *unread)))


def _unread(logs: Given, found: Sampled) -> list[str]:
    """Returns a line for each of the first unreadable files, and their number if there are more."""
    named = [str(logs.directory / str(each)) for each in found.unread[:NAMED]]
    return named + ([f"{len(found.unread) - NAMED:,} more"] if len(found.unread) > NAMED else [])


def _may_be_one(primary: Given, foreign: Given) -> bool:
    one, other = primary.directory.resolve(), foreign.directory.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def _paths(logs: Given, seen: Sampled) -> set[Path]:
    return {logs.directory.resolve() / name.partition("/")[2] for name in seen.records}


def looked_at(logs: Given, size: int = FOREIGN[0], records: int = FOREIGN[1], *, before: float = 0.0) -> Sampled:
    """Samples a side's logs. File names in the result start with the directory's name, which tells what kind of logs
    they are.

    Raises LogDirectoryError, also if none of the files can be read.
    """
    check_directory(logs.directory)
    patterns = compile_patterns(logs.patterns or ALL)
    found = sample(logs.directory, patterns, size=size, records=records, before=before, links=logs.links)
    if found.unread and not found.records:
        first, others = found.unread[0], len(found.unread) - 1
        what = first.message + (f", and {others:,} more cannot be read" if others else "")
        raise LogDirectoryError(what, str(logs.directory / first.path), READABLE)
    above = (part for part in reversed(logs.directory.absolute().parts) if any(map(str.isalpha, part)))
    root = next(above, "")
    return replace(found, records={f"{root}/{name}": records for name, records in found.records.items()})
