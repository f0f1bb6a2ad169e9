"""Directories of a pipeline's output, of its publishers (slots of joiners, dispatchers), and of copies.

A datacentre keeps copies of other datacentres' output below its state: ``copies/DATACENTRE/SLOT/``, in the form of a
slot's state directory (``photon.outputs.published``), with the files themselves in ``output/`` in it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.output_kinds import KINDS as KINDS
from photon.outputs.cursor import Cursor
from photon.outputs.identity import identity_of
from photon.outputs.log.format import COPY_NAME as COPY_NAME
from photon.outputs.log.format import OUTPUT_NAME as OUTPUT_NAME
from photon.outputs.log.format import RETIRED_NAME
from photon.outputs.next_read import end_of
from photon.outputs.published import Listing, SlotListing, SlotOutput, slot_states

COPIES_NAME = "copies"
# Written when its slot is retired, before the copy is used for clearing or reading; the copy no longer changes.
SEALED_NAME = "sealed.json"
SLOTS_DIRECTORY = "slots"
EXPORTS_DIRECTORY = "exports"  # dispatchers publish their own records here, in the same form as slots
EMBEDDED_STATE = ".photon"


def kept_directory(state: Path, datacentre: str, slot: str) -> Path:
    """Returns a copy's directory. ``state``: state directory of the datacentre that keeps the copy."""
    return state / COPIES_NAME / datacentre / slot


def is_kept(disk: Disk, directory: Path) -> bool:
    """True if the directory holds a copy."""
    return disk.exists(directory / COPY_NAME)


class NotBegun(UsageError):
    """There is no output at ``place`` yet; a following reader may wait for it."""

    def __init__(self, why: str, place: OutputPlace) -> None:
        super().__init__(why)
        self.place = place


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Directories of one pipeline's output."""

    output: Path  # holds joined/, unmatched/, filtered/, rejected/ and late/
    state: Path  # holds slots/ and exports/
    # Directories in which other datacentres keep copies of its slots: sealed ones are read if the slot's own is gone.
    copies: tuple[Path, ...] = ()
    # Read copies even before they are sealed, as the slots' own directories are on another machine.
    live: bool = False

    @classmethod
    def of_join(cls, output: Path) -> OutputPlace:
        """Opens the output of ``photon join``, or of a backfill, in this directory. Raises UsageError if there is
        none; NotBegun if it may still be created there.
        """
        place = cls(output, output / EMBEDDED_STATE)
        if place.state.is_dir():
            return place
        if not output.exists():
            raise NotBegun(f"{output}: no such directory", place)
        if not output.is_dir():
            raise UsageError(f"{output}: not a directory")
        none = f"{output}: not an output of photon join; name a deployment's with --config FILE"
        if not any(output.iterdir()):
            raise NotBegun(none, place)
        if any((output / kind).is_dir() for kind in KINDS):
            raise UsageError(f"{output}: is a deployment's output; name it with --config FILE --datacentre NAME")
        raise UsageError(none)

    def states(self, disk: Disk) -> list[Path]:
        """Returns the state directories of all publishers, slots first."""
        own = slot_states(disk, self.state / SLOTS_DIRECTORY)
        names = {state.name for state in own}
        for directory in self.copies:
            mark = COPY_NAME if self.live else RETIRED_NAME
            found = [name for name in disk.names(directory) if disk.exists(directory / name / mark)]
            own += [directory / name for name in found if name not in names]
            names.update(found)
        return [*own, *slot_states(disk, self.state / EXPORTS_DIRECTORY)]

    def is_slot(self, state: Path) -> bool:
        """True if ``state`` is a joiner's slot. Dispatchers register nothing, so their records are never cleared."""
        return state.parent == self.state / SLOTS_DIRECTORY

    def published(self, disk: Disk, kinds: Collection[str] | None = None) -> tuple[SlotOutput, ...]:
        """Returns the published files of all publishers. Raises PublishedDamaged, OSError."""
        return tuple(self.listing(disk, state, kinds).look() for state in self.states(disk))

    def identity(self, disk: Disk) -> str:
        """Returns the output's identity; empty if it has none (``photon.outputs.identity``).

        Raises IdentityDamaged, OSError.
        """
        return identity_of(disk, self.state)

    def end(self, disk: Disk, kinds: Collection[str] | None = None) -> Cursor:
        """Returns the cursor after everything published now. Raises PublishedDamaged, IdentityDamaged, OSError."""
        return end_of(self.published(disk, kinds)).within(self.identity(disk), self.output)

    def listing(self, disk: Disk, state: Path, kinds: Collection[str] | None) -> Listing:
        """Returns the listing for this state directory."""
        return SlotListing(disk, state, kinds)


class PublishedEnd:
    """Finds the end of the published output of a pipeline's slots. For repeated use."""

    def __init__(self, disk: Disk, slots: Path) -> None:
        """``slots``: the directory with the slots' state directories."""
        self._disk, self._slots = disk, slots
        self._listings: dict[Path, SlotListing] = {}

    def look(self) -> tuple[Cursor, frozenset[str]]:
        """Returns the present end, and the names of retired slots. Raises PublishedDamaged, OSError."""
        states = slot_states(self._disk, self._slots)
        self._listings = {each: self._listings.get(each) or SlotListing(self._disk, each) for each in states}
        slots = [listing.look() for listing in self._listings.values()]
        found = end_of(slots)
        for log, at in found.positions.items():
            if (listing := self._listings.get(self._slots / log.slot)) is not None:
                listing.forget(log.kind, at.number)
        return found, frozenset(each.slot for each in slots if each.retired)
