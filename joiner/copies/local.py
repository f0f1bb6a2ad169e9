"""The slot's side of its copy, on the disk: compares what the copy holds, reads what is to be shipped.

Reads plain files, and final ones by their uncompressed bytes. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.copies.api import Extension, Part
from photon.joiner.copies.shipper import LocalFiles, Ship
from photon.joiner.slot.witness import READ_BYTES, PrefixHash
from photon.outputs.content import FileContent

LINE_BYTES_MAX = 48 << 20
"""A longer line does not fit into a message, and is not shipped; records are bounded far below."""


class CannotShip(PhotonError):
    """Something in the slot's output keeps it from being shipped. One line."""


class LocalOutput:
    """Of one slot."""

    def __init__(self, disk: Disk, root: Path, name: Callable[[int, int], str]) -> None:
        """``name``: of a log and a file number, relative to ``root``, plain."""
        self._disk = disk
        self._root = root
        self._name = name
        self._known: dict[int, dict[WitnessLog, PrefixHash]] = {}
        self._contents: dict[int, tuple[int, FileContent]] = {}

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
        """Whole lines; what is durable ends with one."""
        while True:
            data = self._read(log, number, start, wanted)
            if len(data) < wanted:
                raise CannotShip(f"{self._path(log, number)}: ends before byte {start + wanted}, which was durable")
            if whole := data.rfind(b"\n") + 1:
                return data[:whole]
            if start + wanted >= end or wanted >= LINE_BYTES_MAX:
                raise CannotShip(f"{self._path(log, number)}: no line ends from byte {start} on")
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
            known = self._contents[log] = (number, FileContent(self._disk, self._path(log, number), at))
        return known[1].read(length)

    def _path(self, log: int, number: int) -> Path:
        return self._root / self._name(log, number)
