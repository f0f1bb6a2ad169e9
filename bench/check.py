"""Checks an output: each click with a query occurs once, with that query and all members of both records.

Pure. A speed counts only if this check, which is the same for every system, passes.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.workload import digest

Pair = Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]  # an output record to its (click, query)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one output."""

    right: int = 0
    lost: int = 0
    doubled: int = 0  # records beyond the first of a click
    wrong: int = 0  # contents that differ from the truth's
    invented: int = 0  # records of clicks that have no query, or do not exist
    unreadable: int = 0

    @property
    def problems(self) -> str:
        """Problems of the output; empty if there are none."""
        counts = {name: getattr(self, name) for name in ("lost", "doubled", "wrong", "invented", "unreadable")}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def read_truth(file: Path) -> dict[str, str]:
    """Reads the truth: click id -> digest of the pair."""
    with open(file) as lines:
        return dict(line.rstrip("\n").split("\t") for line in lines)


def check(lines: Iterable[bytes], truth: Mapping[str, str], pair: Pair) -> Verdict:
    """Compares output lines with the truth."""
    seen: set[str] = set()
    right = doubled = wrong = invented = unreadable = 0
    for line in lines:
        try:
            click, query = pair(orjson.loads(line))
            click_id = click["click_id"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            unreadable += 1
            continue
        expected = truth.get(click_id)
        if expected is None:
            invented += 1
        elif click_id in seen:
            doubled += 1
        else:
            seen.add(click_id)
            good = digest(click, query) == expected
            right += good
            wrong += not good
    return Verdict(right, len(truth) - len(seen), doubled, wrong, invented, unreadable)


def of_photon(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the pair in one of Photon's records."""
    return record["foreign"], record["primary"]


def of_peer(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the pair in a peer's record: ``{"click": {…}, "query": {…}}``."""
    return record["click"], record["query"]


def output_lines(directory: Path) -> Iterator[bytes]:
    """Yields lines of all files below, including compressed ones; skips hidden and unfinished files."""
    for path in sorted(directory.rglob("*")):
        below = path.relative_to(directory).parts
        if (
            not path.is_file()
            or any(part.startswith((".", "_")) for part in below)
            or path.suffix in (".tmp", ".crc")
        ):
            continue
        if path.suffix == ".gz":
            if path.with_suffix("").exists():
                continue  # the plain one counts while both are there
            with gzip.open(path) as file:
                yield from file
        else:
            with open(path, "rb") as file:
                yield from file
