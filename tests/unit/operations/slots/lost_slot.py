"""A registry in memory with a slot that owns ids, and the remains of its output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from photon.batch.ids import Ids
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.api import DIGEST_BYTES, I64, U8, U64, Answer, Digester, Slot, token_of
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.replica.embedded import LocalBackend
from photon.operations.slots import sealing
from photon.operations.slots.id_list import IdList
from photon.operations.slots.retiring import Asking, Place, Retirement
from tests.unit.idregistry.groups import Cluster

DIGESTER = Digester(b"0123456789abcdef", "clicks")
SLOT = Slot("east-1", "east", "host:1")
BATCH = 4


@dataclass
class LostSlot:
    """``ids`` are owned under one token of the slot."""

    directory: Path
    registry: RoutedRegistry
    ids: list[str]
    token: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.directory / "state" / "slots" / SLOT.name

    @property
    def ids_path(self) -> Path:
        return self.directory / "ids.jsonl"

    async def begin(self, ids: Sequence[str], slot: Slot = SLOT) -> int:
        """Registers ids for a slot; returns the token."""
        known = await self.registry.read_witness(slot.name)
        assert known is not None
        opened = await self.registry.open_slot(slot, known.newest, b"nonce-%d" % time.monotonic_ns())
        assert opened is not None
        assert not opened.reason
        self.registry.announce(slot, [opened.incarnation])
        token = token_of(opened.incarnation, BATCH)
        found = await self.registry.insert(rows(ids, token), timeout=60)
        assert set(found.outcomes.tolist()) == {Answer.COMMITTED}
        return token

    def line(self, event_id: str, token: int | None = None) -> bytes:
        line = b'{"event_id":"%b","key":"k","event_time_ns":%d,"foreign":"x","token":"%016x"}\n'
        return line % (event_id.encode(), int(event_id[1:]), self.token if token is None else token)

    def saved(self, ids: Sequence[str], tail: bytes = b"") -> Path:
        """A copy of its output with these records."""
        root = self.directory / "saved"
        (root / "joined").mkdir(parents=True, exist_ok=True)
        path = root / "joined" / f"{SLOT.name}-000001.jsonl"
        path.write_bytes(b"".join(map(self.line, ids)) + tail)
        return root

    def retirement(self, *, copy: Path | None = None, already: bool = False, recovery: Any = None) -> Retirement:
        found = None if copy is None else sealing.find_copy(copy, SLOT.name)
        if found is not None:
            sealing.add_marks(RealDisk(), found, self.state)
            sealing.measure(RealDisk(), found, ())
        return Retirement(
            slot=SLOT.name,
            asking=Asking(recovery or self.registry.recovery, SystemClock(), SLOT.name, 10.0),
            disk=RealDisk(),
            id_list=IdList(RealDisk(), self.ids_path, SLOT.name),
            place=Place(self.state, self.directory / "output"),
            already=already,
            resolve=self._resolve,
            tell=self.told.append,
            copy=found,
            clear=self._clear,
            digester=DIGESTER,
        )

    async def _resolve(self, page: EntryPage) -> Mapping[bytes, bytes]:
        known = {DIGESTER.digest(each.encode()): each.encode() for each in self.ids}
        size = DIGEST_BYTES
        digests = [page.digests[size * at : size * (at + 1)] for at in range(len(page))]
        return {digest: known[digest] for digest in digests if digest in known}

    async def _clear(self, digests: bytes, times: I64, tokens: U64) -> U8:
        return await self.registry.clear(digests, times, tokens, timeout=60)

    async def reopened(self) -> set[bytes]:
        """Digests on the lists of all shards."""
        found: set[bytes] = set()
        for shard in await self.registry.recovery.shards(timeout=60):
            page = await self.registry.recovery.scan_reopened(shard, timeout=60)
            assert isinstance(page, EntryPage)
            found.update(page.digests[n : n + DIGEST_BYTES] for n in range(0, len(page.digests), DIGEST_BYTES))
        return found


def digests_of(ids: Sequence[str]) -> set[bytes]:
    return {DIGESTER.digest(each.encode()) for each in ids}


def rows(ids: Sequence[str], token: int, generation: int = 0) -> Ids:
    n = len(ids)
    times = np.array([int(each[1:]) for each in ids], np.int64)
    return Ids(
        DIGESTER.digests([each.encode() for each in ids]), times, np.full(n, token, np.uint64),
        np.ones(n, np.uint8), np.arange(n, dtype=np.uint32), np.full(n, generation, np.uint32),
    )  # fmt: skip


@asynccontextmanager
async def lost_slot(directory: Path, ids: Sequence[str]) -> AsyncIterator[LostSlot]:
    cluster = Cluster(1, 2)
    replica = cluster.replica()
    replica.start()
    registry = RoutedRegistry(LocalBackend(replica), SystemClock())
    deadline = time.monotonic() + 60
    while not replica.ready:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
    try:
        lost = LostSlot(directory, registry, list(ids))
        lost.token = await lost.begin(ids)
        yield lost
    finally:
        await registry.close()
