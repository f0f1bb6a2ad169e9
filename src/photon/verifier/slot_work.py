"""What is done for one slot, again and again: a list of steps, each with a pass of its own.

Ids that stay owned are registered, and not written or not cleared. The registry knows no time of registration, so an
id's time counts from when it was first seen owned. Tokens rise with time within a slot, so of many the lowest ones
are kept: they are the oldest.

Event ids that were read lately are kept with their places (``SeenIds``): the same one twice is an alarm. Of each
digest 64 bits are kept, with the place of its line. What is read again after a crash stands at its own place and is
no second one. The newest ids are in a dict; it becomes a sorted column when it is full, and the oldest column goes
when there are more ids than the window has.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.idregistry.api import INCARNATION_BITS, U64, incarnation_of
from photon.idregistry.core.outcomes import Refusal
from photon.verifier.alarms import AlarmKind, AlarmLog, shown
from photon.verifier.lock import state_of
from photon.verifier.recovery import SlotRecovery
from photon.verifier.verifier import Verifier, read_versioned

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

RECENT_MAX = 1 << 16
OFFSET_BITS = 44
"""Of a place; the rest of its 64 bits number the file."""
FILES_MAX = 1 << 18
"""Output files that are numbered; then numbers restart and the window is emptied."""


class SeenIds:
    def __init__(self, ids_max: int, recent_max: int = RECENT_MAX) -> None:
        self._recent_max = min(recent_max, max(ids_max // 2, 1))
        self._columns_max = max(ids_max // self._recent_max - 1, 1)
        self._recent: dict[int, int] = {}
        self._columns: list[tuple[U64, U64]] = []  # newest last: (keys sorted, places)
        self._files: dict[str, int] = {}
        self._names: list[str] = []

    def add(self, file: str, digests: bytes, offsets: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
        """Lines of one file, in order. (row, (file, offset) of its twin) for each that stands elsewhere too.

        Slots of a pipeline share its output, so a file's name is enough: the directory of a slot may have a copy.
        """
        number = self._number(file)
        column = np.frombuffer(digests, "<u8")[::2]
        older = self._in_columns(column)
        out = []
        recent = self._recent
        for row, (key, offset) in enumerate(zip(column.tolist(), offsets, strict=True)):
            place = number << OFFSET_BITS | offset
            twin = recent.setdefault(key, place)
            if twin == place and row in older:
                twin = older[row]
            if twin != place:
                out.append((row, self._place(twin)))
        if len(recent) >= self._recent_max:
            self._settle()
        return out

    def _number(self, file: str) -> int:
        number = self._files.get(file)
        if number is None:
            if len(self._names) >= FILES_MAX:
                self._files, self._names, self._recent, self._columns = {}, [], {}, []
            number = self._files[file] = len(self._names)
            self._names.append(file)
        return number

    def _place(self, place: int) -> tuple[str, int]:
        return self._names[place >> OFFSET_BITS], place & ((1 << OFFSET_BITS) - 1)

    def _in_columns(self, keys: U64) -> dict[int, int]:
        """Row -> place, the newest first."""
        found: dict[int, int] = {}
        for known, places in self._columns:
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            for row in np.flatnonzero(known[at] == keys).tolist():
                found[row] = int(places[at[row]])
        return found

    def _settle(self) -> None:
        keys = np.fromiter(self._recent, np.uint64, len(self._recent))
        places = np.fromiter(self._recent.values(), np.uint64, len(self._recent))
        order = np.argsort(keys)
        self._columns.append((keys[order], places[order]))
        self._recent = {}
        del self._columns[: -self._columns_max]


VERSION = 1
TOKENS_MAX = 4096
"""Batches that are tracked one by one; younger ones are only counted."""


class OwnedFile(msgspec.Struct, forbid_unknown_fields=True):
    version: int = VERSION
    at_ns: int = 0
    ids: int = 0
    retired: bool = False  # the slot is fenced in some shard
    since_ns: dict[int, int] = {}  # token -> when ids were first seen owned under it

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest id was first seen owned; None: nothing is owned."""
        return min(self.since_ns.values(), default=None)


@dataclass(slots=True)
class OwnedCount:
    tokens: Counter[int] = field(default_factory=Counter)
    fenced: bool = False
    whole: bool = True  # every shard answered to its end

    def add(self, tokens: U64, *, fenced: bool) -> None:
        self.fenced = self.fenced or fenced
        values, counts = np.unique(tokens, return_counts=True)
        self.tokens.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class TooLong:
    ids: int
    for_s: float  # the oldest of them
    incarnations: tuple[int, ...]
    batches: int


def updated(before: OwnedFile, count: OwnedCount, now_ns: int) -> OwnedFile:
    """The file after another scan. An incomplete scan removes nothing: what it did not reach may still be owned."""
    tokens = set(count.tokens) if count.whole else set(count.tokens) | set(before.since_ns)
    kept = sorted(tokens)[:TOKENS_MAX]
    # a clock that was set back must not make anything older or younger than it can be.
    since = {token: min(before.since_ns.get(token, now_ns), now_ns) for token in kept}
    ids = count.tokens.total() if count.whole else max(before.ids, count.tokens.total())
    return OwnedFile(VERSION, now_ns, ids, count.fenced or (before.retired and not count.whole), since)


def too_long(owned: OwnedFile, count: OwnedCount, now_ns: int, alarm_s: float) -> TooLong | None:
    """None: nothing is owned for longer than ``alarm_s``."""
    old = {token: at for token, at in owned.since_ns.items() if now_ns - at > alarm_s * 1e9}
    if not old:
        return None
    return TooLong(
        sum(count.tokens[token] for token in old),
        (now_ns - min(old.values())) / 1e9,
        _incarnations(old),
        len(old),
    )


def _incarnations(tokens: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({incarnation_of(token) for token in tokens}))


OWNED_NAME = "owned.json"
ASK_S = 5.0
PAGE_REST_S = 0.02
"""Between two pages of a scan: a page takes the registry some milliseconds."""
ALL_INCARNATIONS = (1 << INCARNATION_BITS) - 1


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """A slot and where it lies. ``own``: the verifier's files; in the state directory, unless that is missing."""

    name: str
    state: Path
    own: Path


class Step(Protocol):
    async def pass_(self) -> None:
        """Does what there is to do now. Raises PhotonError, OSError: told, and tried again."""
        ...


@dataclass(eq=False)
class LineFindings:
    """Alarms about lines, while they are cleared. Implements ``verifier.Findings``.

    ``alarms``: of all slots, by name: a twin may stand in another one.
    """

    slot: str
    alarms: dict[str, AlarmLog]
    seen: SeenIds
    clock: Clock

    def read(self, file: str, offsets: Sequence[int], ids: Sequence[bytes], digests: bytes) -> None:
        for row, twin in self.seen.add(file, digests, offsets):
            # Whichever is read first: of the two places it is always the same one that the alarm stands at.
            first, (name, offset) = sorted([twin, (file, offsets[row])])
            what = f"event {shown(ids[row])} stands in {first[0]} at {first[1]} as well"
            alarms = self.alarms.get(_slot_of(name)) or self.alarms[self.slot]
            alarms.tell(AlarmKind.DOUBLED, what, self.clock.now_ns(), file=name, offset=offset, event_id=ids[row])

    def unreadable(self, file: str, offset: int, line: bytes) -> None:
        what = f"{len(line)} bytes below the published length are no output record: {line[:80]!r}"
        self.alarms[self.slot].tell(AlarmKind.TORN, what, self.clock.now_ns(), file=file, offset=offset)

    def refused(self, file: str, offset: int, event_id: bytes, token: int) -> None:
        what = f"token {token:016x} does not own event {shown(event_id)}: another one does, or none"
        self.alarms[self.slot].tell(
            AlarmKind.NOT_OWNED, what, self.clock.now_ns(), file=file, offset=offset, event_id=event_id
        )


class ClearStep:
    """Clears the tokens of what is published (rule 8)."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier

    async def pass_(self) -> None:
        await self.verifier.run_once()


class RecoveryStep:
    """Gives up what a redone incarnation still owns (rule 13)."""

    def __init__(self, recovery: SlotRecovery, clock: Clock) -> None:
        self._recovery = recovery
        self._clock = clock

    async def pass_(self) -> None:
        await self._recovery.run_once(self._clock.monotonic())


@dataclass(eq=False)
class OwnedStep:
    """Looks every now and then for ids that are owned for too long.

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
    """The last whole count of a slot; empty where nobody has counted yet. Raises VerifierDamaged."""
    return read_versioned(disk, path, OwnedFile, VERSION) or OwnedFile()


def _slot_of(file: str) -> str:
    return file.rpartition("/")[2].rpartition("-")[0]
