"""``photon join`` without a configuration: looks at the first records of both sides, and keeps what it concluded."""

from __future__ import annotations

from pathlib import Path

from photon.adapters.inference import SAMPLE_RECORDS, Unclear, infer
from photon.adapters.logs.follower import Follower
from photon.config.errors import UsageError

SAMPLE_BYTES = 16 << 20


def inferred_toml(primary: Path, foreign: Path) -> tuple[str, tuple[str, ...]]:
    """A configuration as TOML, and why it says what it says. Raises UsageError where no single reading stands out."""
    guess = infer(_sample(primary), _sample(foreign))
    if isinstance(guess, Unclear):
        raise UsageError(f"{guess.problem}; {guess.todo}")
    return guess.toml, guess.explanation


def _sample(directory: Path) -> dict[str, list[bytes]]:
    follower = Follower(directory, has_header=False)
    try:
        follower.scan()
        blocks = follower.poll(SAMPLE_BYTES, final=True)
    finally:
        follower.close()
    sample: dict[str, list[bytes]] = {}
    each = max(10, SAMPLE_RECORDS // max(1, len(blocks)))
    for block in blocks:
        records = sample.setdefault(block.file.path, [])
        if len(records) < each:
            records += [line.removesuffix(b"\r") for line in block.data.split(b"\n", each)[:-1][:each]]
    return sample
