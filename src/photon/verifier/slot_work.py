"""The verifier's work for one slot: a list of steps, repeated in separate passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from isal import isal_zlib

from photon.config.clock import NEVER_NS, NS_PER_S, Clock
from photon.config.disk import Disk
from photon.config.versioned_file import read_versioned
from photon.idregistry.api import INCARNATION_BITS
from photon.idregistry.core.outcomes import Refusal
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.damaged import unreadable
from photon.outputs.log.format import DamagedRange, gzip_name, slot_of
from photon.outputs.published import GONE, OutputFile, SlotListing, SlotOutput, covering
from photon.verifier.alarms import AlarmKind, AlarmLog, shown
from photon.verifier.owned_ids import OwnedCount, OwnedFile, TooLong, too_long, updated
from photon.verifier.seen_ids import SeenIds
from photon.verifier.slot_state import state_of
from photon.verifier.verifier import VerifierDamaged

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

OWNED_NAME, LOOKED_NAME = "owned.json", "looked.json"
ASK_S = 5.0
READ_BYTES = 1 << 20
PAGE_REST_S = 0.02  # between two pages of a scan: each takes the registry some milliseconds
ALL_INCARNATIONS = (1 << INCARNATION_BITS) - 1


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """A slot's directories. ``own``: directory of the verifier's files, in the state directory if that exists."""

    name: str
    state: Path
    own: Path


Step = Callable[[], Awaitable[object]]  # does the work due now. Raises PhotonError, OSError: reported, and retried.


@dataclass(eq=False)
class LineFindings:
    """Raises alarms about lines while they are cleared. Implements ``verifier.Findings``.

    ``alarms``: the alarm logs of all slots, by name, as a twin may be in another slot.
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
            what = f"event {shown(ids[row])} is also in {first[0]} at {first[1]}"
            alarms = self.alarms.get(slot_of(name)) or self.alarms[self.slot]
            alarms.tell(AlarmKind.DOUBLED, what, self.clock.now_ns(), file=name, offset=offset, event_id=ids[row])

    def unreadable(self, file: str, offset: int, line: bytes) -> None:
        what = f"{len(line)} bytes below the published length are not an output record: {line[:80]!r}"
        self.alarms[self.slot].tell(AlarmKind.TORN, what, self.clock.now_ns(), file=file, offset=offset)

    def refused(self, file: str, offset: int, event_id: bytes, token: int) -> None:
        what = f"token {token:016x} does not own event {shown(event_id)}: another token does, or none"
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
    """Reads the last complete count of a slot; empty if there is none yet. Raises VerifierDamaged."""
    return read_versioned(disk, path, OwnedFile, VerifierDamaged) or OwnedFile()


class Looked(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``looked.json``: final files changed before this time were compared with their checksums."""

    at_ns: int = 0


@dataclass(eq=False)
class KeptStep:
    """Checks at intervals that output files, even those verified long ago, are as they were published.

    A check stats each file. A final file that has changed since the last check, by its inode's time, is read and
    compared with its checksum in the manifest. Raises PublishedDamaged, VerifierDamaged, OSError.
    """

    disk: Disk
    place: SlotPlace
    output: Path
    alarms: AlarmLog
    clock: Clock
    every_s: float
    bytes_max: int = 256 << 20  # read in one look; the next one continues

    def __post_init__(self) -> None:
        self._next_s = float("-inf")
        self._listing = SlotListing(self.disk, self.place.state)
        self._path = self.place.own / LOOKED_NAME
        self._looked = read_versioned(self.disk, self._path, Looked, VerifierDamaged) or Looked()

    async def pass_(self) -> None:
        if self.clock.monotonic() < self._next_s:
            return
        now_ns = self.clock.now_ns()
        try:
            found, looked = await asyncio.to_thread(self._look, now_ns)
        except FileNotFoundError:  # compressed or moved away just now
            return
        for name, why in found.items():
            if why:
                self.alarms.tell(AlarmKind.CHANGED, f"{self.output / name}: {why}", now_ns, file=name)
            else:
                self.alarms.over(AlarmKind.CHANGED, now_ns, file=name)
        if looked != self._looked:
            self.disk.replace(self._path, msgspec.json.encode(looked))
            self._looked = looked
        self._next_s = self.clock.monotonic() + self.every_s

    def _look(self, now_ns: int) -> tuple[dict[str, str], Looked]:
        """Returns (name -> why the file is not as it was published, or an empty text; the progress)."""
        slot = self._listing.look()
        removable = slot.removable
        # The events of a damaged file were given back.
        whole = replace(slot, files=tuple(file for file in slot.files if not file.damaged))
        lost = {each.file: each.why for each in unreadable(self.disk, whole, self.output)}
        found = {name: why for name, why in lost.items() if why != GONE or name not in removable}
        upto, due = now_ns - NS_PER_S, list[tuple[int, OutputFile, Path]]()
        for file in slot.files:
            if file.name in lost:
                continue
            if file.damaged or not file.crc32:
                found[file.name] = ""
            elif (at := self._changed(slot, file)) is not None:
                changed_ns, path = at
                if self._looked.at_ns < changed_ns <= upto:
                    due.append((changed_ns, file, path))
                elif self.alarms.is_open(AlarmKind.CHANGED, file.name):  # its disk may have been away
                    due.append((NEVER_NS, file, path))
        left, at_ns = self.bytes_max, self._looked.at_ns
        for changed_ns, file, path in sorted(due, key=lambda each: each[0]):
            if left <= 0 and changed_ns > at_ns:
                break
            found[file.name] = self._compared(file, path)
            left, at_ns = left - file.length, at_ns if changed_ns == NEVER_NS else changed_ns
        return found, Looked(at_ns)

    def _changed(self, slot: SlotOutput, file: OutputFile) -> tuple[int, Path] | None:
        """Returns when a file, plain or compressed, last changed, and its plain path; ``None`` if it vanished."""
        plain = (slot.output or self.output) / file.path
        for path in (plain, plain.with_name(gzip_name(plain.name))):
            with suppress(FileNotFoundError):
                return path.stat().st_ctime_ns, plain
        return None

    def _compared(self, file: OutputFile, plain: Path) -> str:
        content, crc32 = FileContent(self.disk, plain, 0), 0
        try:
            while part := content.read(min(READ_BYTES, file.length - content.at)):
                crc32 = isal_zlib.crc32(part, crc32)
            content.check()
        except OutputMissing as missing:
            return missing.why
        if content.at == file.length and crc32 == file.crc32:
            return ""
        return f"changed after it was published: checksum {crc32:08x}, but {file.crc32:08x} was published"
