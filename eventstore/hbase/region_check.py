"""Whether a table still holds what was committed to it (hbase_file_map.py has the reasoning)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from photon.eventstore.hbase import schema
from photon.eventstore.hbase.api import HBase, Region


@dataclass(frozen=True, slots=True)
class VerifiedRegions:
    """These incarnations of these regions hold everything that was committed."""

    regions: list[Region]
    instances: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RegionView:
    """What a look-up takes before it asks. ``verified`` None: nothing can be said."""

    verified: VerifiedRegions | None
    recovering: bool


def read_instances(hbase: HBase, regions: Sequence[Region]) -> tuple[bytes, ...] | None:
    """The incarnations of these regions now; None while one is not open."""
    # Whole rows: asked for columns, HBase 2.6.1 does not find some rows of hbase:meta once it was flushed (its Bloom
    # filters there are by row and column, and go by another order of rows than the table).
    rows = hbase.read(schema.META, [region.name for region in regions])
    return schema.instances(regions, rows)


def surviving_checkpoint(marks: Sequence[frozenset[bytes]], closed: dict[bytes, int]) -> int:
    """To which checkpoint to go back, 0 for the beginning; ``marks`` by region, ``closed``: checkpoints by mark.

    One before the newest that every region has the end of, see the module.
    """
    kept = min(max((closed[mark] for mark in each if mark in closed), default=0) for each in marks)
    return max((number for number in closed.values() if number < kept), default=0)
