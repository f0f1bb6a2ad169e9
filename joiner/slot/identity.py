"""Gets a process its incarnation of the slot (rule 6), by a compare-and-set at the registry that is noted on disk.

The nonce is durable before it is sent to the registry, so that a start after a crash can learn the number that its
predecessor may have received. It then draws a new nonce, since a nonce serves only the process that drew it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from photon.config.back_off import BackOff
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry.api import Opened, Registry, Slot

_T = TypeVar("_T")

SPARK_NAME = "spark"  # in the state of a slot that a join on Spark writes: its journal
NONCE_BYTES = 16
ASK_AGAIN = BackOff(first=0.05, most=2.0)


class SlotState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    slot: str
    datacentre: str
    last: int  # the newest incarnation known to this directory
    nonce: str = ""  # hex; set while an opening is under way


@dataclass(slots=True, eq=False)
class SlotRefused(PhotonError):
    """This directory may not serve the slot. ``str()`` is one line for the operator."""

    reason: str

    def __str__(self) -> str:
        return self.reason


PUT_BACK = (
    "Restore its newest state and output, both of one moment; if they are lost, move the slot's directory away, "
    "retire the slot (`photon slot retire`, with --copy for what is left of its output) and start with another name"
)


@dataclass(slots=True, eq=False)
class OutOfStep(SlotRefused):
    """State, output and registry differ in age: one of them was lost, or restored from an older copy. Raised before
    anything is changed. ``remedy`` is for deployments; other uses of slots replace it.
    """

    exit_code = 2
    remedy: str = PUT_BACK

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}"


def read_state(disk: Disk, path: Path, slot: Slot) -> SlotState:
    """Reads the directory's state; empty for a new directory."""
    if not disk.exists(path):
        return SlotState(slot.name, slot.datacentre, 0)
    try:
        state = decoded(disk.read(path), SlotState)
    except DECODE_ERRORS as bad:
        raise SlotRefused(f"{path}: unreadable ({bad}); restore it from a backup, or retire the slot") from bad
    if (state.slot, state.datacentre) != (slot.name, slot.datacentre):
        raise SlotRefused(
            f"{path}: belongs to slot {state.slot} of datacentre {state.datacentre}, not to {slot.name} of "
            f"{slot.datacentre}; start it under its own name, or give this slot another directory"
        )
    return state


async def until_told(ask: Callable[[], Awaitable[_T | None]], pause: Callable[[float], Awaitable[None]]) -> _T:
    """Repeats a request at growing intervals until it is answered."""
    pauses = ASK_AGAIN.pauses()
    while (told := await ask()) is None:
        await pause(next(pauses))
    return told


async def open_incarnation(
    disk: Disk,
    path: Path,
    slot: Slot,
    registry: Registry,
    *,
    draw_nonce: Callable[[], bytes],
    pause: Callable[[float], Awaitable[None]],
) -> Opened:
    """Returns this process's incarnation and the witness; waits until the registry answers. Raises SlotRefused."""
    state = read_state(disk, path, slot)
    last = state.last
    if state.nonce:
        # Left by an interrupted start: its number must be known before the next one can follow it. The bytes just
        # read may be in the cache only: unless they are durable, a power cut after the answer would leave a directory
        # that remembers less than the registry, and is refused permanently.
        left = bytes.fromhex(state.nonce)
        _write(disk, path, slot, last, left)
        last = (await _ask(slot, last, left, registry, pause, path)).incarnation
    nonce = draw_nonce()
    _write(disk, path, slot, last, nonce)
    opened = await _ask(slot, last, nonce, registry, pause, path)
    _write(disk, path, slot, opened.incarnation, b"")
    return opened


async def _ask(
    slot: Slot, last: int, nonce: bytes, registry: Registry, pause: Callable[[float], Awaitable[None]], path: Path
) -> Opened:
    return _granted(await until_told(lambda: registry.open_slot(slot, last, nonce), pause), slot, last, path)


def _granted(opened: Opened, slot: Slot, last: int, path: Path) -> Opened:
    if opened.incarnation:
        return opened
    raise OutOfStep(
        f"slot {slot.name} was refused: {opened.reason or 'not the newest'} (the registry knows incarnation "
        f"{opened.newest}, {path} remembers {last})",
        "If this directory is a copy or was restored, use the original; otherwise give the slot a new name",
    )


def _write(disk: Disk, path: Path, slot: Slot, last: int, nonce: bytes) -> None:
    state = SlotState(slot.name, slot.datacentre, last, nonce.hex())
    disk.replace(path, msgspec.json.encode(state))
