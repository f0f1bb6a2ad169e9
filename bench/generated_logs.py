"""Writes a generated stream at once into rolled log files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from photon.lab.demo.generator import Line


@dataclass(frozen=True, slots=True)
class Written:
    primary: Path
    foreign: Path
    primary_bytes: int
    foreign_bytes: int
    primary_records: int
    foreign_records: int


def write(lines: Iterable[Line], directory: Path, *, files: int) -> Written:
    """Writes the lines, sorted by arrival, into ``files`` files a side: ``queries-0003.log``, ``clicks-0003.log``."""
    sides: dict[bool, list[tuple[int, bytes]]] = {True: [], False: []}
    for line in lines:
        sides[line.primary].append((line.at_us, line.data))
    totals = []
    for primary, name in ((True, "queries"), (False, "clicks")):
        side = sides[primary]
        side.sort(key=lambda pair: pair[0])
        target = directory / name
        target.mkdir(parents=True)
        each = -(-len(side) // files) or 1
        for number in range(files):
            part = side[number * each : (number + 1) * each]
            (target / f"{name}-{number:04d}.log").write_bytes(b"".join(data for _, data in part))
        totals.append((target, sum(len(data) for _, data in side), len(side)))
    (queries, query_bytes, query_count), (clicks, click_bytes, click_count) = totals
    return Written(queries, clicks, query_bytes, click_bytes, query_count, click_count)
