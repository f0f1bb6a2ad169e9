"""Merges consecutive batches of a shard if that leaves the same state: replaying many small entries is expensive.

A batch costs some 250 us plus 1 us per id. Ids are independent of each other, and for one id only an insert after a
clear depends on the order: a batch that inserts an id cleared earlier in the run begins a new run. The other inputs
of inserts and clears (callers, watermarks, boundary, config) are changed only by other commands, and these end a run.
Only the merged batch has a result: use this only if nothing waits for the results of single batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from photon.idregistry.api import DIGEST_BYTES, split_digests
from photon.idregistry.core import commands as c


def merged(commands: Iterable[tuple[int, c.ShardCommand]]) -> Iterator[tuple[int, c.ShardCommand]]:
    """Merges consecutive batches. Yields (index, command), ascending: a merged batch has its last part's index."""
    run = Run()
    for index, command in commands:
        batch = command if isinstance(command, c.Batch) else None
        if run.batches and (batch is None or not run.takes(batch)):
            yield run.index, run.whole()
            run = Run()
        if batch is None:
            yield index, command
        else:
            run.add(index, batch)
    if run.batches:
        yield run.index, run.whole()


class Run:
    def __init__(self) -> None:
        self.index = 0
        self.batches: list[c.Batch] = []
        self._ids = 0
        self._cleared: set[bytes] = set()

    def takes(self, batch: c.Batch) -> bool:
        """True if the batch may be merged with the batches collected so far."""
        if self._ids + _ids(batch) > c.MAX_ENTRY_IDS or batch.config != self.batches[0].config:
            return False
        return not self._cleared or self._cleared.isdisjoint(split_digests(batch.digests))

    def add(self, index: int, batch: c.Batch) -> None:
        self.index = index
        self.batches.append(batch)
        self._ids += _ids(batch)
        self._cleared.update(split_digests(batch.clear_digests))

    def whole(self) -> c.Batch:
        batches = self.batches
        if len(batches) == 1:
            return batches[0]
        return c.Batch.of(
            callers=_callers(batches),
            inserts=[each.inserts() for each in batches],
            clears=[each.clears() for each in batches],
            config=batches[0].config,
        )


def _ids(batch: c.Batch) -> int:
    return len(batch.kinds) + len(batch.clear_digests) // DIGEST_BYTES


def _callers(batches: list[c.Batch]) -> list[tuple[int, int]]:
    callers: list[tuple[int, int]] = []
    for batch in batches:
        for caller, count in batch.callers:
            if callers and callers[-1][0] == caller:
                callers[-1] = (caller, callers[-1][1] + count)
            else:
                callers.append((caller, count))
    return callers
