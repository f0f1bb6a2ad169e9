"""Checks a replica: the memory its ids take, its rows against their sums, its states against the leader's.

Runs once a second for a few milliseconds; reports problems as alarms in the log and in Describe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.idregistry.core import commands as c
from photon.idregistry.core.state_checks import Checked
from photon.idregistry.raft.api import Applied
from photon.idregistry.replica.batching import MemoryLimit
from photon.idregistry.replica.shard_server import ShardServer

log = get_logger(__name__)

CHECK_SECONDS = 60.0  # interval of comparing a shard whose state changed
CHECKED_AT_ONCE = 8  # shards checked in one round, to spread the checks of many shards


class Watch:
    """Runs the checks of one replica, on the serving event loop."""

    def __init__(self, *, shards: Mapping[int, ShardServer], memory: MemoryLimit, clock: Clock) -> None:
        """``shards``: may change while it runs."""
        self._shards = shards
        self._memory = memory
        self._clock = clock
        self._checked_at: dict[int, tuple[float, int]] = {}  # shard -> time of the check, and its last entry
        self._blocks: Iterator[tuple[ShardServer, int, int]] = iter(())
        self._differing: set[int] = set()

    async def once(self) -> None:
        self.look()
        await self._check_states()

    def look(self) -> None:
        if self._memory.update(sum(server.machine.resident_bytes for server in self._shards.values())):
            if self._memory.reached:
                log.error("registry.memory_limit", reason=self._memory.reason)
            else:
                log.info("registry.memory_has_room", bytes=self._memory.used, limit=self._memory.limit)
        self._add_up_some()
        self._tell_differences()

    # -- inside -------------------------------------------------------------------------------------------------
    def _add_up_some(self) -> None:
        """Checks one block of one shard's rows against its sum; a pass over ten million ids takes three minutes."""
        block = next(self._blocks, None)
        if block is None:
            self._blocks = self._all_blocks()
            block = next(self._blocks, None)
        if block is None:
            return
        server, bucket, number = block
        if not server.machine.adds_up(bucket, number) and not server.damaged:
            server.damaged = True
            log.error("registry.rows_damaged", shard=server.number, bucket=bucket, block=number)

    def _all_blocks(self) -> Iterator[tuple[ShardServer, int, int]]:
        for server in list(self._shards.values()):
            for bucket, number in server.machine.blocks():
                yield server, bucket, number

    def _tell_differences(self) -> None:
        for number, server in self._shards.items():
            difference = server.machine.checks.difference
            if (difference is not None) == (number in self._differing):
                continue
            if difference is None:
                self._differing.discard(number)
                log.info("registry.state_equal", shard=number)
            else:
                self._differing.add(number)
                log.error(
                    "registry.state_differs",
                    shard=number,
                    entry=difference.index,
                    ours=difference.ours.hex(),
                    leaders=difference.leaders.hex(),
                )

    async def _check_states(self) -> None:
        now = self._clock.monotonic()
        due: deque[ShardServer] = deque(maxlen=CHECKED_AT_ONCE)
        for number, server in self._shards.items():
            if not server.leads or not server.machine.configured:
                self._checked_at.pop(number, None)
                continue
            at, covered = self._checked_at.setdefault(number, (now, 0))
            if now - at >= CHECK_SECONDS and server.machine.applied > covered:
                due.append(server)
        for server in due:
            await self._check(server, now)

    async def _check(self, server: ShardServer, now: float) -> None:
        """Proposes one entry that hashes the state, and another that compares: a difference shows at once."""
        self._checked_at[server.number] = (now, 0)
        outcome = await server.propose(c.CheckState())
        if not isinstance(outcome, Applied) or not isinstance(outcome.result, Checked):
            return
        found = outcome.result
        outcome = await server.propose(c.CheckState(found.form, found.index, found.hash))
        if isinstance(outcome, Applied) and isinstance(outcome.result, Checked):
            self._checked_at[server.number] = (now, outcome.result.index)
