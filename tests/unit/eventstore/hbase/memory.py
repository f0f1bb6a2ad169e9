"""An HBase in memory that may lose acknowledged writes: regions keep a prefix of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from photon.eventstore.hbase import schema
from photon.eventstore.hbase.api import SCAN_ROWS, Cells, HBaseUnavailable, Put, Region


@dataclass
class MemoryRegion:
    """``told`` in order; the first ``flushed`` of it survive a crash, of the rest a prefix."""

    region: Region
    opened: int = 1
    flushed: int = 0
    told: list[Put] = field(default_factory=list)
    rows: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)

    def tell(self, put: Put) -> None:
        self.told.append(put)
        self.rows.setdefault(put.row, {}).update(put.cells)

    def crash(self, kept: int) -> None:
        told, self.told, self.rows = self.told[:kept], [], {}
        self.opened += 1
        for put in told:
            self.tell(put)
        self.flushed = kept


class MemoryHBase:
    """Implements api.HBase. ``before_call`` is run before each call and may crash regions or raise."""

    def __init__(self, rng: random.Random, regions: int = 4) -> None:
        self.rng = rng
        starts = [b"", *schema.split_keys(regions)]
        ends = [*starts[1:], b""]
        self.parts = [
            MemoryRegion(Region(b"t,%d" % i, start, end))
            for i, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        self.chaos = 0.0  # probability that something happens before a call, and before each row of a write
        self.lost = 0
        self.scanned = 0  # rows that scans have returned

    # -- faults ------------------------------------------------------------------------------------------------------
    def crash(self, part: MemoryRegion) -> None:
        kept = self.rng.randint(part.flushed, len(part.told))
        self.lost += len(part.told) - kept
        part.crash(kept)

    def _before(self) -> None:
        if self.rng.random() < self.chaos:
            part = self.rng.choice(self.parts)
            what = self.rng.randrange(4)
            if what == 0:
                self.crash(part)
            elif what == 1:
                part.flushed = len(part.told)
            elif what == 2:
                part.crash(len(part.told))  # moved: closed and opened, nothing lost
            else:
                raise HBaseUnavailable("chaos")

    # -- api.HBase ---------------------------------------------------------------------------------------------------
    def _part(self, row: bytes) -> MemoryRegion:
        return next(each for each in reversed(self.parts) if row >= each.region.start)

    def read(self, table: bytes, rows: Sequence[bytes]) -> dict[bytes, Cells]:
        out: dict[bytes, Cells] = {}
        for row in rows:
            self._before()
            if table == schema.META:
                part = next(each for each in self.parts if each.region.name == row)
                out[row] = {b"info:state": b"OPEN", b"info:sn": b"%d" % part.opened}
            elif cells := self._part(row).rows.get(row):
                out[row] = dict(cells)
        return out

    def write(self, table: bytes, puts: Sequence[Put]) -> None:
        shuffled = list(puts)
        self.rng.shuffle(shuffled)
        for put in shuffled:
            self._before()
            self._part(put.row).tell(put)

    def scan(self, table: bytes, start: bytes, stop: bytes, rows: int = SCAN_ROWS) -> Iterator[tuple[bytes, Cells]]:
        known = {row: cells for part in self.parts for row, cells in part.rows.items()}
        for row in sorted(known):
            if start <= row and (not stop or row < stop):
                self.scanned += 1
                yield row, known[row]

    def regions(self, table: bytes) -> list[Region]:
        self._before()
        return [each.region for each in self.parts]

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass
