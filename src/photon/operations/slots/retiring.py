"""Retires a slot whose disk is permanently lost, in steps that may be killed anywhere and repeated (rule 14).

The steps: put the intent into the config group; wait until every shard is fenced; seal a surviving copy, if any;
durably list the ids that still have the slot's tokens; give them up by compare. From the fence on nothing new can be
owned under the slot's tokens, so the list covers everything that is ever given up. A repeated step changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.words import many
from photon.idregistry.api import I64, INCARNATION_BITS, U8, U64, Answer, Digester
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import CopyOf
from photon.joiner.slot.lock import SlotLock
from photon.operations.slots import sealing
from photon.operations.slots.id_list import IdList, listed

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

ALL_INCARNATIONS = (1 << INCARNATION_BITS) - 1
ASK_S = 5.0
PAUSE_S = 0.2
LOCK_WAIT_S = 30.0  # longest wait for a keeper that is extending its copy
PAGE_IDS = 2048  # ids given up per request

T = TypeVar("T")
Tell = Callable[[str], None]  # receives progress, one line each
# The event ids of a page's digests, if logs on this machine have them
Resolve = Callable[[EntryPage], Awaitable[Mapping[bytes, bytes]]]


Clear = Callable[[bytes, I64, U64], Awaitable[U8]]  # one attempt; UNKNOWN without an answer


class NotAnswered(PhotonError):
    """The registry did not answer in time; repeat the command to continue."""


class RetiringRefused(PhotonError):
    """Retiring is not allowed, or not possible."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of the slot's datacentre on this machine."""

    state: Path  # the slot's state directory; lost, but files for readers are written there
    output: Path


@dataclass(slots=True)
class ShardCount:
    shard: int
    ids: int = 0
    oldest_ns: int | None = None
    kinds: dict[int, int] = field(default_factory=dict)

    def add(self, page: EntryPage) -> None:
        if not len(page):
            return
        self.ids += len(page)
        oldest = int(page.times.min())
        self.oldest_ns = oldest if self.oldest_ns is None else min(oldest, self.oldest_ns)
        for kind, count in zip(*np.unique(page.kinds, return_counts=True), strict=True):
            self.kinds[int(kind)] = self.kinds.get(int(kind), 0) + int(count)


@dataclass(slots=True)
class Report:
    slot: str
    shards: tuple[int, ...] = ()
    counts: list[ShardCount] = field(default_factory=list)
    copy: sealing.Copy | None = None
    listed: int = 0
    resolved: int = 0
    reopened: int = 0
    cleared_meanwhile: int = 0  # listed ids that no longer belonged to this slot when given up
    ids_path: Path | None = None

    @property
    def ids(self) -> int:
        return sum(each.ids for each in self.counts)


class Asking:
    """Asks the registry until it answers, for a limited time."""

    def __init__(
        self, recovery: Recovery, clock: Clock, slot: str, wait_s: float, *, page_ids: int = PAGE_IDS
    ) -> None:
        self._recovery = recovery
        self._clock = clock
        self._slot = slot
        self._wait_s = wait_s
        self._page_ids = page_ids

    async def intent(self) -> tuple[int, ...]:
        """Records the intent; returns the shards that must be fenced. Raises RetiringRefused, NotAnswered."""
        return await self._answered(lambda: self._recovery.retire_slot(self._slot, timeout=ASK_S), "the config group")

    async def shards(self) -> tuple[int, ...]:
        """Returns the shards of the deployment. Raises NotAnswered."""
        deadline = self._deadline()
        while not (found := await self._recovery.shards(timeout=ASK_S)):
            await self._pause(deadline, "no replica reported the shards")
        return found

    async def wait_fenced(self, shards: Sequence[int], tell: Tell) -> None:
        """Waits until all shards are fenced against the slot. Raises NotAnswered."""
        deadline = self._deadline()
        for done, shard in enumerate(shards):
            tell(f"fenced: {done} of {len(shards)} shards")
            while not (await self._first(shard)).fenced:
                await self._pause(deadline, f"shard {shard} is not fenced yet")

    async def _first(self, shard: int) -> EntryPage:
        return await self._answered(
            lambda: self._recovery.scan_owned(shard, self._slot, ALL_INCARNATIONS, limit=1, timeout=ASK_S),
            f"shard {shard}",
        )

    async def owned(self, shard: int) -> AsyncIterator[EntryPage]:
        """Yields pages of the slot's owned ids in a shard. Raises NotAnswered."""
        cursor = b""
        while True:
            page = await self._answered(
                lambda cursor=cursor: self._recovery.scan_owned(  # type: ignore[misc]
                    shard, self._slot, ALL_INCARNATIONS, cursor=cursor, limit=self._page_ids, timeout=ASK_S
                ),
                f"shard {shard}",
            )
            if len(page):
                yield page
            cursor = page.cursor
            if not cursor:
                return

    async def give_up(self, page: EntryPage) -> U8:
        """Gives up the ids of a page; returns REOPENED or NO_OP for each. Raises NotAnswered."""
        deadline = self._deadline()
        answers = np.full(len(page), Answer.UNKNOWN, np.uint8)
        unheard = False
        while True:
            rows = np.flatnonzero(answers == Answer.UNKNOWN)
            digests = np.frombuffer(page.digests, "V16")[rows].tobytes()
            columns = (page.times[rows], page.tokens[rows], page.generations[rows])
            heard = await self._recovery.reopen(digests, *columns, retired=True, timeout=ASK_S)
            if unheard:  # ids given up by a lost answer no longer belong to this slot
                heard = np.where(heard == Answer.NO_OP, Answer.REOPENED, heard).astype(np.uint8)
            answers[rows] = heard
            if not np.any(answers == Answer.UNKNOWN):
                return answers
            unheard = True
            await self._pause(deadline, "not all ids were given up")

    async def cleared(self, clear: Clear, digests: bytes, times: I64, tokens: U64) -> U8:
        """Clears ids, asking until all answers are known. Raises NotAnswered."""
        deadline = self._deadline()
        while True:
            answers = await clear(digests, times, tokens)
            if not np.any(answers == Answer.UNKNOWN):
                return answers
            await self._pause(deadline, "not all ids of the copy are cleared")

    async def _answered(self, ask: Callable[[], Awaitable[T | Refusal]], whom: str) -> T:
        deadline = self._deadline()
        while True:
            found = await ask()
            if not isinstance(found, Refusal):
                return found
            if found.status is Status.REFUSED:
                raise RetiringRefused(found.reason)
            await self._pause(deadline, f"{whom} does not answer ({found.reason or found.status.name.lower()})")

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._wait_s

    async def _pause(self, deadline: float, why: str) -> None:
        if self._clock.monotonic() >= deadline:
            raise NotAnswered(f"{why} after {self._wait_s:g} s; repeat the command to continue")
        await asyncio.sleep(PAUSE_S)


async def count(asking: Asking, slot: str, each_page: Callable[[EntryPage], Awaitable[None]] | None = None) -> Report:
    """Counts the slot's current ids. Changes nothing. Raises NotAnswered."""
    report = Report(slot, await asking.shards())
    for shard in report.shards:
        counted = ShardCount(shard)
        report.counts.append(counted)
        async for page in asking.owned(shard):
            counted.add(page)
            if each_page is not None:
                await each_page(page)
    return report


@dataclass(frozen=True, slots=True)
class Retirement:
    """The retirement of one slot with all its inputs; ``run`` carries it out."""

    slot: str
    asking: Asking
    disk: Disk
    id_list: IdList
    place: Place | None  # None means the datacentre's state is not on this machine
    already: bool  # the registry already has the intent
    resolve: Resolve
    tell: Tell
    copy: sealing.Copy | None = None
    witness: Witness = ()  # the slot's witness: the output that its readers may have seen
    clear: Clear | None = None
    digester: Digester | None = None

    async def run(self) -> Report:
        """Retires the slot. After PhotonError or OSError, repeat the call."""
        self.id_list.open()
        if self.place is not None:
            root = None if self.copy is None else self.copy.root
            sealing.begin(self.disk, self.place.state, self.slot, root, already=self.already)
        self.tell("recording the intent in the config group")
        to_fence = await self.asking.intent()
        shards = tuple(sorted({*to_fence, *await self.asking.shards()}))
        await self.asking.wait_fenced(shards, self.tell)
        self.tell(f"fenced: all of {len(shards)} shards")
        report = Report(self.slot, shards, copy=self.copy)
        if self.copy is not None:
            await self._seal(self.copy)
        elif self.place is not None:
            sealing.publish(self.disk, self.place.state, self.slot, None, self.place.output)
        await self._list(report)
        await self._reopen(report)
        return report

    async def _seal(self, copy: sealing.Copy) -> None:
        assert self.place is not None, "the copy is sealed and visible to readers"
        assert self.digester is not None
        assert self.clear is not None
        clear = self.clear

        async def answered(digests: bytes, times: I64, tokens: U64) -> U8:
            return await self.asking.cleared(clear, digests, times, tokens)

        if copy.kept is not None:
            await asyncio.to_thread(self._seal_kept, copy.kept, copy)
        sealing.make_durable(self.disk, copy)
        await sealing.clear_copy(
            self.disk,
            copy,
            self.digester,
            answered,
            lambda ids: self.tell(f"the copy: {many(ids, 'id')} cleared"),
        )
        sealing.publish(self.disk, self.place.state, self.slot, copy, self.place.output)
        self.tell(f"the copy is sealed: {sum(copy.lengths.values()):,} bytes of {many(len(copy.files), 'file')}")

    def _seal_kept(self, directory: Path, copy: sealing.Copy) -> None:
        """Seals the keeper's copy, so that the keeper, which may be running, can no longer extend it."""
        lock = SlotLock(directory)
        lock.take(wait_s=LOCK_WAIT_S)
        try:
            sealing.seal(self.disk, directory, CopyOf(directory.parent.name, self.slot))
        finally:
            lock.release()
        copy.files = sealing.find_kept(self.disk, directory, self.slot).files
        if self.place is not None:
            sealing.add_marks(self.disk, copy, self.place.state)
        sealing.measure(self.disk, copy, self.witness)

    async def _list(self, report: Report) -> None:
        """Makes the list of ids durable before any of them is given up."""
        report.ids_path = self.id_list.path
        for shard in report.shards:
            counted = ShardCount(shard)
            report.counts.append(counted)
            async for page in self.asking.owned(shard):
                counted.add(page)
                known = await self.resolve(page) if self.id_list.lacks(page) else {}
                report.resolved += len(known)
                self.id_list.add(list(listed(page, known)))
                self.tell(f"listed: {len(self.id_list):,} ids")
            self.id_list.sync()
        report.listed = len(self.id_list)

    async def _reopen(self, report: Report) -> None:
        for shard in report.shards:
            async for page in self.asking.owned(shard):
                if self.id_list.lacks(page):
                    raise RetiringRefused(
                        f"shard {shard} owns ids of slot {self.slot} that are not on the list: it is not fenced "
                        "after all; report this, and do not repeat the command"
                    )
                answers = await self.asking.give_up(page)
                report.reopened += int(np.count_nonzero(answers == Answer.REOPENED))
                report.cleared_meanwhile += int(np.count_nonzero(answers == Answer.NO_OP))
                self.tell(f"given up: {report.reopened:,} of {report.ids:,} ids")
