"""A ShardMachine fed with commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from photon.idregistry.core import commands as c
from photon.idregistry.core.id_bucket import FrozenBucket
from photon.idregistry.core.id_table import IdTable
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.core.state_machine import BatchAnswers, ShardMachine
from tests.unit.idregistry.model import ALL_OF_TIME, BUCKET_BITS, Row, batch, digest, time_of


def thawed(buckets: Iterable[FrozenBucket], bucket_bits: int) -> IdTable:
    """The table that ``freeze`` saw, as a restart reads it."""
    table = IdTable(bucket_bits)
    for each in buckets:
        while each.position < each.count:
            table.load(each.number, each.read(16_384))
        table.load_generations(each.number, each.generations.items())
    return table


class Shard:
    """One machine, without Raft."""

    def __init__(self, configured: bool = True) -> None:
        self.machine = ShardMachine(BUCKET_BITS)
        self.index = 0
        self.log: list[bytes] = []
        if configured:
            self.do(c.Configure(1, ALL_OF_TIME))
            self.do(c.Announce("a", "dc1", [1]))
            self.do(c.Announce("b", "dc2", [2]))

    def do(self, command: c.ShardCommand) -> Any:
        self.index += 1
        self.log.append(c.encode(command))
        return self.machine.apply(self.index, self.log[-1])

    def forget_after(self, index: int) -> None:
        """Drops all later entries."""
        self.index = index
        del self.log[index:]

    def insert(self, *rows: Row, callers: list[tuple[int, int]] | None = None) -> list[int]:
        result = self.do(batch(rows, callers))
        assert isinstance(result, BatchAnswers)
        return result.inserts.outcomes.tolist()

    def clear(self, *rows: Row) -> list[int]:
        result = self.do(batch((), clears=rows))
        assert isinstance(result, BatchAnswers)
        return result.clears.outcomes.tolist()

    def look_up(self, *ids: int) -> list[int]:
        found = self.machine.look_up(b"".join(map(digest, ids)), np.array([time_of(i) for i in ids], np.int64))
        return found.outcomes.tolist()

    def reload(self) -> None:
        other = ShardMachine()
        other.restore(list(self.machine.snapshot()))
        self.machine = other

    def owned(self, slot: str, upto: int, limit: int = 3) -> list[EntryPage]:
        """All pages of a scan."""
        pages = [self.machine.owned_page(slot, upto, b"", limit)]
        while pages[-1].cursor:
            pages.append(self.machine.owned_page(slot, upto, pages[-1].cursor, limit))
        return pages

    def reopened(self, limit: int = 3) -> list[EntryPage]:
        """All pages of a scan."""
        pages = [self.machine.reopened_page(b"", limit)]
        while pages[-1].cursor:
            pages.append(self.machine.reopened_page(pages[-1].cursor, limit))
        return pages


def ids_in(pages: list[EntryPage]) -> list[int]:
    """The ids' numbers, in the order of the scan; their times agree."""
    found = []
    for page in pages:
        for row, time in enumerate(page.times.tolist()):
            number = int.from_bytes(page.digests[16 * row + 8 : 16 * row + 16], "little")
            assert time == time_of(number)
            found.append(number)
    return found
