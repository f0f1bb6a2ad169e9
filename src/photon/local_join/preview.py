"""A look at the first records before anything is joined: what the logs are, and whether the configuration fits."""

from __future__ import annotations

from pathlib import Path

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import LINES, Adapter, Framing, LogFile
from photon.adapters.inference import SAMPLE_RECORDS, Unclear, infer
from photon.adapters.logs.follower import Follower
from photon.config.errors import UsageError

SAMPLE_BYTES = 16 << 20
MANY = 20


def inferred_toml(primary: Path, foreign: Path) -> tuple[str, tuple[str, ...]]:
    """A configuration as TOML, and why it says what it says. Raises UsageError where no single reading stands out."""
    guess = infer(_named(primary), _named(foreign))
    if isinstance(guess, Unclear):
        error = UsageError(f"{guess.problem}; {guess.todo}")
        error.example = guess.example
        raise error
    return guess.toml, guess.explanation


def _named(directory: Path) -> dict[str, list[bytes]]:
    return {file.path: records for file, records in _sample(directory).items()}


def check_readable(adapter: Adapter, primary: Path, foreign: Path) -> None:
    """Refuses a configuration under which not one of the first records of a side can be read.

    A few malformed records are the logs' affair and are rejected one by one; when all of MANY are, it is the
    configuration that is wrong, and verdicts would be final. Raises UsageError.
    """
    sides = (
        ("primary", primary, adapter.primary_has_header, adapter.primary_framing),
        ("foreign", foreign, adapter.foreign_has_header, adapter.foreign_framing),
    )
    for side, directory, has_header, framing in sides:
        sample = _sample(directory, has_header=has_header, framing=framing)
        faults = [_fault(adapter, side, record, file) for file, each in sample.items() for record in each]
        if len(faults) >= MANY and all(faults):
            raise UsageError(
                f"not one of the first {len(faults)} {side} records can be read with this configuration; "
                f"the first of {directory / next(iter(sample)).path}: {faults[0]}; photon adapter test shows them"
            )


def _fault(adapter: Adapter, side: str, record: bytes, file: LogFile) -> str:
    """Why a record cannot be read; empty when it can."""
    ask = adapter.primary_key if side == "primary" else adapter.foreign_header
    (answer,) = Guard(adapter).each([record], lambda given: ask(given, file))
    return (answer.reason or "bad record") if isinstance(answer, Fault) else ""


def _sample(directory: Path, *, has_header: bool = False, framing: Framing = LINES) -> dict[LogFile, list[bytes]]:
    """The first records of each of the first logs."""
    follower = Follower(directory, has_header=has_header, framing=framing)
    try:
        follower.scan()
        blocks = follower.poll(SAMPLE_BYTES, final=True)
    finally:
        follower.close()
    sample: dict[LogFile, list[bytes]] = {}
    each = max(10, SAMPLE_RECORDS // max(1, len(blocks)))
    for block in blocks:
        records = sample.setdefault(block.file, [])
        if len(records) < each:
            records += [line.removesuffix(b"\r") for line in block.data.split(b"\n", each)[:-1][:each]]
    return sample
