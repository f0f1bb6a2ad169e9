"""The work for one slot: a list of steps, repeated in separate passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.versioned_file import read_versioned
from photon.idregistry.api import INCARNATION_BITS
from photon.idregistry.core.outcomes import Refusal
from photon.outputs.log.format import DamagedRange, slot_of
from photon.outputs.published import covering
from photon.verifier.alarms import AlarmKind, AlarmLog, shown
from photon.verifier.owned_ids import OwnedCount, OwnedFile, TooLong, too_long, updated
from photon.verifier.seen_ids import SeenIds
from photon.verifier.slot_state import state_of
from photon.verifier.verifier import VerifierDamaged

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

OWNED_NAME = "owned.json"
ASK_S = 5.0
PAGE_REST_S = 0.02  # between two pages of a scan: each takes the registry some milliseconds
ALL_INCARNATIONS = (1 << INCARNATION_BITS) - 1


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """A slot and its place. ``own``: the verifier's files; in the state directory, unless that is missing."""

    name: str
    state: Path
    own: Path


Step = Callable[[], Awaitable[object]]
"""Does the work due now. Raises PhotonError, OSError: reported, and retried."""


@dataclass(eq=False)
class LineFindings:
    """Alarms about lines, while they are cleared. Implements ``verifier.Findings``.

    ``alarms``: of all slots, by name: a twin may be in another one.
    """

    slot: str
    alarms: dict[str, AlarmLog]
    seen: SeenIds
    clock: Clock
    cleared: Callable[[str, Sequence[int], Sequence[int]], None] = lambda file, offsets, times_ns: None
    damaged: Callable[[str], Sequence[DamagedRange]] = lambda slot: ()  # of a slot, as they are now

    def read(self, file: str, offsets: Sequence[int], ids: Sequence[bytes], digests: bytes) -> None:
        damaged = cache(self.damaged)  # each slot's are read once for these lines, if one of its lines is a twin

        def is_lost(name: str, offset: int) -> bool:
            return covering(damaged(slot_of(name)), name, offset) is not None

        for row, twin in self.seen.add(file, digests, offsets, is_lost):
            # Regardless of the reading order, the alarm is always at the same one of the two places.
            first, (name, offset) = sorted([twin, (file, offsets[row])])
            what = f"event {shown(ids[row])} stands in {first[0]} at {first[1]} as well"
            alarms = self.alarms.get(slot_of(name)) or self.alarms[self.slot]
            alarms.tell(AlarmKind.DOUBLED, what, self.clock.now_ns(), file=name, offset=offset, event_id=ids[row])

    def unreadable(self, file: str, offset: int, line: bytes) -> None:
        what = f"{len(line)} bytes below the published length are no output record: {line[:80]!r}"
        self.alarms[self.slot].tell(AlarmKind.TORN, what, self.clock.now_ns(), file=file, offset=offset)

    def refused(self, file: str, offset: int, event_id: bytes, token: int) -> None:
        what = f"token {token:016x} does not own event {shown(event_id)}: another one does, or none"
        self.alarms[self.slot].tell(
            AlarmKind.NOT_OWNED, what, self.clock.now_ns(), file=file, offset=offset, event_id=event_id
        )


@dataclass(eq=False)
class OwnedStep:
    """Scans at intervals for ids that are owned for too long.

    Raises VerifierDamaged.
    """

    disk: Disk
    place: SlotPlace
    scans: Recovery
    alarms: AlarmLog
    clock: Clock
    alarm_s: float
    every_s: float

    def __post_init__(self) -> None:
        self._next_s = float("-inf")
        self.owned = read_owned(self.disk, self.place.own / OWNED_NAME)

    async def pass_(self) -> None:
        if self.clock.monotonic() < self._next_s:
            return
        count = await self._count()
        now_ns = self.clock.now_ns()
        before, self.owned = self.owned, updated(self.owned, count, now_ns)
        if (before.since_ns, before.ids, before.retired) != (self.owned.since_ns, self.owned.ids, self.owned.retired):
            self.disk.replace(self.place.own / OWNED_NAME, msgspec.json.encode(self.owned))
        found = too_long(self.owned, count, now_ns, self.alarm_s)
        if found is not None and (found.ids or count.whole):
            self._tell(found, now_ns)
        elif found is None and count.whole:
            self.alarms.over(AlarmKind.OWNED, now_ns)
        self._next_s = self.clock.monotonic() + self.every_s

    def _tell(self, found: TooLong, now_ns: int) -> None:
        if self.alarms.is_open(AlarmKind.OWNED):
            return
        state = state_of(self.disk, self.place.state, retired=self.owned.retired)
        what = (
            f"{found.ids:,} ids in {found.batches:,} batches of incarnation "
            f"{', '.join(map(str, found.incarnations))} are owned for {found.for_s:,.0f} s or longer; "
            f"slot {self.place.name}: {state}"
        )
        self.alarms.tell(AlarmKind.OWNED, what, now_ns)

    async def _count(self) -> OwnedCount:
        count = OwnedCount()
        shards = await self.scans.shards(timeout=ASK_S)
        count.whole = bool(shards)
        for shard in shards:
            cursor = b""
            while True:
                page = await self.scans.scan_owned(
                    shard, self.place.name, ALL_INCARNATIONS, cursor=cursor, timeout=ASK_S
                )
                if isinstance(page, Refusal):
                    count.whole = False
                    break
                count.add(page.tokens, fenced=page.fenced)
                cursor = page.cursor
                if not cursor:
                    break
                await asyncio.sleep(PAGE_REST_S)
        return count


def read_owned(disk: Disk, path: Path) -> OwnedFile:
    """The last whole count of a slot; empty if there was none yet. Raises VerifierDamaged."""
    return read_versioned(disk, path, OwnedFile, VerifierDamaged) or OwnedFile()
