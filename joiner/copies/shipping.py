"""Runs a slot's shipper: reads bytes in a thread, calls the keeper, and limits what the slot may publish (rule 14).

``LocalOutput`` reads the slot's files: it compares them with the copy and reads bytes to send, from plain files or
from final ones by uncompressed offset. Not thread-safe.
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

LINE_BYTES_MAX = 48 << 20  # longer events would not fit into a message; the limit on lines is far lower


class CannotShip(PhotonError):
    """The slot's output cannot be sent because of a fault in it. One line."""


@dataclass(eq=False)
class LocalOutput:
    """The output of one slot.

    ``name``: (log, file number) -> plain name relative to ``root``.
    """

    disk: Disk
    root: Path
    name: Callable[[int, int], str]
    # Damaged ranges of the slot's files: the copy has newlines there, and its list of them is the slot's.
    damaged: Callable[[], Sequence[DamagedRange]] = tuple

    def __post_init__(self) -> None:
        self._known: dict[int, dict[WitnessLog, PrefixHash]] = {}
        self._contents: dict[int, tuple[int, FilledContent]] = {}

    def begins_with(self, ends: Witness, local: LocalFiles) -> bool:
        """True if this output begins with all bytes of a copy with these ends. Raises PhotonError, OSError."""
        return all(
            dict(files).get(end.number, 0) >= end.length and self._hash(log, end) is not None
            for log, (end, files) in enumerate(zip(ends, local, strict=True))
            if end.length
        )

    def extension(self, ship: Ship, incarnation: int, limit: int) -> tuple[Extension, Witness]:
        """Returns the bytes to send, about ``limit`` at most, and the copy's ends after them.

        Raises PhotonError, OSError.
        """
        ends, parts = list(ship.ends), list[Part]()
        for piece in ship.pieces:
            if limit <= 0:
                break
            data = self._lines(piece.log, piece.number, piece.start, min(piece.end - piece.start, limit), piece.end)
            base = self._hash(piece.log, ends[piece.log]) if piece.start else PrefixHash()
            if base is None:
                raise CannotShip(f"{self._path(piece.log, piece.number)}: changed within the part that the copy has")
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
                break  # later files wait until this one is complete
        return Extension(incarnation, ship.ends, tuple(parts), ship.shown), tuple(ends)

    def _lines(self, log: int, number: int, start: int, wanted: int, end: int) -> bytes:
        """Reads records of whole events, about ``wanted`` bytes. The durable part ends at ``end``, with a whole
        event.

        The copy's end limits the published and sealed parts, so it must not be between the pairs of an event.
        """
        while True:
            data = self._read(log, number, start, wanted)
            if len(data) < wanted:
                raise CannotShip(f"{self._path(log, number)}: ends before byte {start + wanted}, which was durable")
            if whole := whole_events(data[: data.rfind(b"\n") + 1]):
                return data[:whole]
            if start + wanted >= end or wanted >= LINE_BYTES_MAX:
                raise CannotShip(f"{self._path(log, number)}: no event ends after byte {start}")
            wanted = min(2 * wanted, end - start, LINE_BYTES_MAX)

    def _hash(self, log: int, end: WitnessLog) -> PrefixHash | None:
        """Returns the hash of the bytes up to ``end``, to be extended; ``None`` if the bytes here differ."""
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
        """Reads bytes. Continues at the last position if it can, as unpacking a final file from its start is slow."""
        known = self._contents.get(log)
        if known is None or known[0] != number or known[1].at != at:
            name = self.name(log, number)
            damaged = [each for each in self.damaged() if each.file == name]
            known = self._contents[log] = (number, FilledContent(self.disk, self.root / name, at, damaged))
        return known[1].read(length)

    def _path(self, log: int, number: int) -> Path:
        return self.root / self.name(log, number)


PERIOD_S = 0.25  # interval of looking for durable bytes
ASK_S = 20.0  # enough for some MiB over a slow line
OPEN_S = 2.0  # how long a start that needs nothing from its copy waits for the keeper

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Copying:
    """``[output] copies = 2``: the keeper of a slot's copy, and how long the slot waits for it."""

    keeper: Keeper
    wait_s: float = 60.0
    required: bool = False  # never show output that the copy lacks


@dataclass(frozen=True, slots=True)
class CopyStats:
    behind_bytes: int  # bytes durable in the slot but not known to be in the copy
    fallback: bool  # output that the copy lacks is shown: an alarm
    trouble: str


@dataclass(eq=False)
class CopyShipping:
    """Ships the output of one open slot, on the event loop of its shell.

    ``local``: the slot's durable files; ``shown``: the slot's published output.
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
        """The reason why the process must end; empty if it need not."""
        return self.shipper.ended

    @property
    def held(self) -> Witness:
        """The copy's content, as far as it is known; empty if unknown."""
        return self.shipper.ends or ()

    def bound(self, whole: Witness, end: Witness) -> Witness:
        """Returns the limit for the witness. ``whole``: the output durable here; ``end``: the present witness."""
        return self.shipper.bound(self.clock.monotonic(), self.local(), whole, end)

    @property
    def told(self) -> bool:
        """True if readers of the copy see all of the slot's published output, or the slot does not wait for the
        copy."""
        return self.shipper.told(self.shown())

    def stats(self) -> CopyStats:
        shipper = self.shipper
        return CopyStats(shipper.behind(self.local()), shipper.fallback, shipper.trouble)

    async def step(self) -> bool:
        """Executes the next step. Returns False if there is none. Failed steps are retried."""
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
        except (
            PhotonError,
            OSError,
        ) as error:  # raised while reading, which does not affect written and synced output
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
            log.error("no copy of the output is kept now: readers see output that is durable only here", **fields)
        elif self._said[0] and not now[0]:
            log.info("the copy of the output has caught up", **fields)
        elif now[1]:
            log.error("the output cannot be copied", **fields)
        self._said = now
