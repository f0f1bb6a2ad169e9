"""The configuration that the logs of a join say themselves: bounded samples in, TOML out."""

from __future__ import annotations

from dataclasses import replace

from photon.adapters.inference import NOTHING, Inferred, Told, Unclear, infer
from photon.adapters.logs.discovery import check_directory, compile_patterns
from photon.adapters.logs.problems import LogDirectoryError
from photon.adapters.logs.sampling import Sampled, sample
from photon.config.errors import UsageError
from photon.local_join.given import ALL, Given

FOREIGN = (4 << 20, 3_000)
"""Bytes and records that are looked at."""
PRIMARY = ((4 << 20, 12_000), (32 << 20, 100_000))
"""The second where the first is not enough."""
BEFORE = 0.75
"""So much of what is read of primary logs stands before the place where foreign ones are read."""
READABLE = "make it readable for this user, or leave it out"
NAMED = 3  # files that cannot be read


def inferred_toml(primary: Given, foreign: Given, told: Told = NOTHING) -> tuple[str, tuple[str, ...]]:
    """A configuration as TOML, and why it says what it says. Raises UsageError where no single reading stands out."""
    guess = inferred(primary, foreign, told)
    if isinstance(guess, Inferred):
        return guess.toml, guess.explanation
    raise UsageError(f"{guess.problem}; {guess.todo}").with_example(guess.example)


def inferred(primary: Given, foreign: Given, told: Told = NOTHING) -> Inferred | Unclear:
    """Foreign values are looked for among more and more of the primary records, until it is certain or the bound is
    met. Raises LogDirectoryError.
    """
    events = looked_at(foreign, *FOREIGN)
    for size, records in PRIMARY:
        known = looked_at(primary, size, records, before=BEFORE)
        guess = infer(known.records, events.records, whole=known.whole, told=told)
        if isinstance(guess, Inferred) or known.whole:
            break
    unread = [f"not looked at: {each}" for each in (*_unread(primary, known), *_unread(foreign, events))]
    if isinstance(guess, Inferred):
        return replace(guess, explanation=(*guess.explanation, *unread))
    return replace(guess, problem="; ".join((guess.problem, *unread)))


def _unread(logs: Given, found: Sampled) -> list[str]:
    """A line for each of the first files that cannot be read."""
    named = [str(logs.directory / str(each)) for each in found.unread[:NAMED]]
    return named + ([f"{len(found.unread) - NAMED:,} more"] if len(found.unread) > NAMED else [])


def looked_at(logs: Given, size: int = FOREIGN[0], records: int = FOREIGN[1], *, before: float = 0.0) -> Sampled:
    """Raises LogDirectoryError, also where there are files and none can be read."""
    check_directory(logs.directory)
    patterns = compile_patterns(logs.patterns or ALL)
    found = sample(logs.directory, patterns, size=size, records=records, before=before, links=logs.links)
    if found.unread and not found.records:
        first, others = found.unread[0], len(found.unread) - 1
        what = first.message + (f", and {others:,} more cannot be read" if others else "")
        raise LogDirectoryError(what, str(logs.directory / first.path), READABLE)
    return found
