"""Runs a slot's shipper: reads what is due in a thread, asks the keeper, says what the slot may show (rule 14).

``LocalOutput`` is the slot's side on the disk: it compares what the copy holds and reads what is to be shipped, plain
files, and final ones by their uncompressed bytes. One thread at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from photon.adapters.envelope_reader import whole_events
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.structured import get_logger
from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.copies.api import CopyOf, Extension, Keeper, Part
from photon.joiner.copies.shipper import LocalFiles, Open, Ship, Shipper, Verify
from photon.joiner.slot.witness import READ_BYTES, PrefixHash
from photon.outputs.damaged import FilledContent
from photon.outputs.log.format import DamagedRange

LINE_BYTES_MAX = 48 << 20
"""An event with longer lines does not fit into a message, and is not shipped; they are bounded far below."""


class CannotShip(PhotonError):
    """Something in the slot's output keeps it from being shipped. One line."""


@dataclass(eq=False)
class LocalOutput:
    """Of one slot.

    ``name``: of a log and a file number, relative to ``root``, plain.
    """

    disk: Disk
    root: Path
    name: Callable[[int, int], str]
    damaged: Callable[[], Sequence[DamagedRange]] = tuple
    """Damaged ranges of the slot's files: the copy has newlines there, and is told of them as the slot is."""

    def __post_init__(self) -> None:
        self._known: dict[int, dict[WitnessLog, PrefixHash]] = {}
        self._contents: dict[int, tuple[int, FilledContent]] = {}

    def begins_with(self, ends: Witness, local: LocalFiles) -> bool:
        """Whether this output has all that a copy with these ends has. Raises PhotonError, OSError."""
        return all(
            dict(files).get(end.number, 0) >= end.length and self._hash(log, end) is not None
            for log, (end, files) in enumerate(zip(ends, local, strict=True))
            if end.length
        )

    def extension(self, ship: Ship, incarnation: int, limit: int) -> tuple[Extension, Witness]:
        """What to send, of about ``limit`` bytes at most, and where the copy then ends.

        Raises PhotonError, OSError.
        """
        ends, parts = list(ship.ends), list[Part]()
        for piece in ship.pieces:
            if limit <= 0:
                break
            data = self._lines(piece.log, piece.number, piece.start, min(piece.end - piece.start, limit), piece.end)
            base = self._hash(piece.log, ends[piece.log]) if piece.start else PrefixHash()
            if base is None:
                raise CannotShip(f"{self._path(piece.log, piece.number)}: changed below what the copy has of it")
            grown = base.copy()
            grown.update(data)
            end = grown.log(piece.number, piece.start + len(data))
            kept = self._known.setdefault(piece.log, {})
            self._known[piece.log] = {known: kept[known] for known in kept if known == ship.ends[piece.log]}
            self._known[piece.log][end] = grown
            parts.append(Part(piece.log, piece.number, data))
            ends[piece.log] = end
            limit -= len(data)
            if end.length < piece.end:
                break  # its successors wait until it is whole
        return Extension(incarnation, ship.ends, tuple(parts), ship.shown), tuple(ends)

    def _lines(self, log: int, number: int, start: int, wanted: int, end: int) -> bytes:
        """The records of whole events; what is durable ends with one. What is shown and sealed is what the copy has,
        so it must not end between the pairs of an event."""
        while True:
            data = self._read(log, number, start, wanted)
            if len(data) < wanted:
                raise CannotShip(f"{self._path(log, number)}: ends before byte {start + wanted}, which was durable")
            if whole := whole_events(data[: data.rfind(b"\n") + 1]):
                return data[:whole]
            if start + wanted >= end or wanted >= LINE_BYTES_MAX:
                raise CannotShip(f"{self._path(log, number)}: no event's records end from byte {start} on")
            wanted = min(2 * wanted, end - start, LINE_BYTES_MAX)

    def _hash(self, log: int, end: WitnessLog) -> PrefixHash | None:
        """Of the bytes that ``end`` names; None: they are others here."""
        found = self._known.get(log, {}).get(end)
        if found is not None:
            return found
        found = PrefixHash()
        at = 0
        while at < end.length and (part := self._read(log, end.number, at, min(READ_BYTES, end.length - at))):
            found.update(part)
            at += len(part)
        if found.log(end.number, at) != end:
            return None
        self._known.setdefault(log, {})[end] = found
        return found

    def _read(self, log: int, number: int, at: int, length: int) -> bytes:
        """A final file goes on where it was: unpacking it from its beginning each time would take long."""
        known = self._contents.get(log)
        if known is None or known[0] != number or known[1].at != at:
            name = self.name(log, number)
            damaged = [each for each in self.damaged() if each.file == name]
            known = self._contents[log] = (number, FilledContent(self.disk, self.root / name, at, damaged))
        return known[1].read(length)

    def _path(self, log: int, number: int) -> Path:
        return self.root / self.name(log, number)


PERIOD_S = 0.25  # from one look at what became durable to the next
ASK_S = 20.0  # a request of some MiB over a slow line
OPEN_S = 2.0  # a start that needs nothing of its copy waits so long for the keeper

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Copying:
    """``[output] copies = 2``: who keeps the copy of a slot's output, and how long the slot waits for it."""

    keeper: Keeper
    wait_s: float = 60.0
    required: bool = False  # never show what the copy does not have


@dataclass(frozen=True, slots=True)
class CopyStats:
    behind_bytes: int  # durable in the slot and not in the copy, as far as is known
    fallback: bool  # what the copy does not have is shown: an alarm
    trouble: str


@dataclass(eq=False)
class CopyShipping:
    """Of one open slot. On the event loop of its shell.

    ``local``: the slot's durable files; ``shown``: what the slot has published.
    """

    shipper: Shipper
    copying: Copying
    of: CopyOf
    output: LocalOutput
    local: Callable[[], LocalFiles]
    shown: Callable[[], Witness]
    clock: Clock
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread

    def __post_init__(self) -> None:
        self._keeper = self.copying.keeper
        self._said = (False, "")

    @property
    def ended(self) -> str:
        """Why the process must end; empty when it need not."""
        return self.shipper.ended

    @property
    def held(self) -> Witness:
        """What the copy is known to hold; empty: nothing is known."""
        return self.shipper.ends or ()

    def bound(self, whole: Witness, end: Witness) -> Witness:
        """Up to where the witness may go. ``whole``: is durable here; ``end``: it has now."""
        return self.shipper.bound(self.clock.monotonic(), self.local(), whole, end)

    @property
    def told(self) -> bool:
        """True if readers of the copy see what the slot has published, or nobody waits for the copy."""
        return self.shipper.told(self.shown())

    def stats(self) -> CopyStats:
        shipper = self.shipper
        return CopyStats(shipper.behind(self.local()), shipper.fallback, shipper.trouble)

    async def step(self) -> bool:
        """Does what is due; False: there was nothing. What goes wrong on the way is tried again."""
        shipper = self.shipper
        step = shipper.next(self.clock.monotonic(), self.local(), self.shown())
        try:
            match step:
                case Open():
                    answer = await self._keeper.open(self.of, shipper.incarnation, timeout=ASK_S)
                    shipper.answered(answer, self.clock.monotonic())
                case Verify(ends):
                    same = await self.in_thread(self.output.begins_with, ends, self.local())
                    shipper.verified(same, self.clock.monotonic())
                case Ship():
                    await self._ship(step)
        except (PhotonError, OSError) as error:  # of reading; what was written and synced is not in doubt
            shipper.failed(str(error), self.clock.monotonic())
        self._tell()
        return step is not None

    async def _ship(self, step: Ship) -> None:
        shipper = self.shipper
        extension, expected = await self.in_thread(
            self.output.extension, step, shipper.incarnation, shipper.limits.request_bytes
        )
        answer = await self._keeper.extend(self.of, extension, timeout=ASK_S)
        shipper.answered(answer, self.clock.monotonic(), expected=expected)

    def _tell(self) -> None:
        now = (self.shipper.fallback, self.shipper.trouble)
        if now == self._said:
            return
        fields = {"slot": self.of.slot, "behind_bytes": self.shipper.behind(self.local()), "why": now[1]}
        if now[0] and not self._said[0]:
            log.error("no copy of the output is kept: what is durable here alone is shown to readers", **fields)
        elif self._said[0] and not now[0]:
            log.info("the copy of the output has caught up", **fields)
        elif now[1]:
            log.error("the output is not copied", **fields)
        self._said = now
