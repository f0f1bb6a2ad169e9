"""Opens a slot (rule 6): checks witness, ages, incarnation and copy, in this order, before anything is redone.

If the registry is stored next to the slot, it also registers existing output again (``register_standing``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.structured import get_logger
from photon.eventstore.api import EventStore
from photon.idregistry.api import Answer, Opened, Registry, Slot
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import CopyAnswer, CopyOf, Status, at_least
from photon.joiner.copies.shipper import Shipper
from photon.joiner.copies.shipping import OPEN_S, Copying, CopyShipping
from photon.joiner.copies.taking import CopySilent
from photon.joiner.shell import Die
from photon.joiner.slot.identity import ASK_AGAIN, OutOfStep, SlotRefused, open_incarnation, read_state
from photon.joiner.slot.slot import AGES, STATE_NAME, Ages, SlotPaths, SlotStore, incarnations_in
from photon.joiner.slot.witness import ask_witness

log = get_logger(__name__)

REGISTER_S = 5.0  # one request for the standing output

_T = TypeVar("_T")
Pause = Callable[[float], Awaitable[None]]


class Work(Protocol):
    """Does disk work, in a thread or directly."""

    async def __call__(self, work: Callable[[], _T]) -> _T: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    registry: Registry
    store: EventStore
    disk: Disk
    clock: Clock
    die: Die
    draw_nonce: Callable[[], bytes]  # 16 fresh random bytes


async def open_slot(
    slot: Slot,
    paths: SlotPaths,
    store: SlotStore,
    world: Surroundings,
    copying: Copying | None,
    *,
    pause: Pause = asyncio.sleep,
    work: Work | None = None,
    ages: Ages = AGES,
) -> tuple[Opened, Witness | None]:
    """Opens the slot if its output has everything in the witness, or can fetch it from the copy; checks again
    afterwards.

    State and output must be of the same age: checked before opening if there is no copy, else after fetching what
    only the copy has. Also returns the copy's ends, if the copy answered and the output begins with all of it. Raises
    SlotRefused, CopySilent if another start may succeed, OSError.
    """
    work = work or to_its_end
    path = paths.state / STATE_NAME
    state = read_state(world.disk, path, slot)  # checked first: another slot's directory is not an old copy
    known = await ask_witness(world.registry, slot.name, pause)
    seen = known.witness
    of = CopyOf(slot.datacentre, slot.name)
    short = await _lacks(store, seen, work)
    if short is not None:
        await _expect_all_in_copy(copying, of, seen, short, pause)
    if copying is None:
        await work(partial(store.check_age, state, known, ages=ages))
    opened = await open_incarnation(world.disk, path, slot, world.registry, draw_nonce=world.draw_nonce, pause=pause)
    ends = None
    if copying is not None:
        ends = await _open_copy(copying, of, opened.incarnation, store, pause, work, needed=short is not None)
    if short is not None or opened.witness != seen:
        still = await _lacks(store, opened.witness, work)
        if still is not None:
            raise _silent(still) if short is not None and ends is None else still
    if copying is not None:
        try:
            copied = opened.witness if ends is None else ends
            await work(partial(store.check_age, state, known, copied, ages))
        except OutOfStep as other:
            if ends is None:  # output that an earlier start took from the copy may be there
                raise _silent(other) from None
            raise
    if ages.own_registry:
        await register_standing(slot, opened.incarnation, store, world.registry, pause)
    return opened, ends


async def register_standing(slot: Slot, incarnation: int, store: SlotStore, registry: Registry, pause: Pause) -> None:
    """Registers again the records in the output beyond its durable part, each under its own token.

    A registry next to the slot may have been restored together with it, from a moment when a batch was logged but not
    registered. The batch's records may be in the newest output, and the comparison of ages does not show that, since
    the log has them. A redo does not register records already in the output, so the registry would give their ids to
    others. Therefore they are registered before anything is redone or served; a registry that remembers them just
    confirms. Waits for the registry without limit.
    """
    standing = store.standing()
    if standing:
        registry.announce(slot, [*(each for each in incarnations_in(standing) if each != incarnation), incarnation])
    for rows in standing:
        left = np.arange(len(rows), dtype=np.intp)
        while len(left):
            answers = (await registry.insert(rows.inserts(left), timeout=REGISTER_S)).outcomes
            left = left[answers == Answer.UNKNOWN]
            if len(left):
                await pause(ASK_AGAIN.first)


async def _lacks(store: SlotStore, witness: Witness, work: Work) -> SlotRefused | None:
    try:
        await work(partial(store.check_witness, witness))
    except SlotRefused as refused:
        return refused
    return None


async def _expect_all_in_copy(
    copying: Copying | None, of: CopyOf, witness: Witness, short: SlotRefused, pause: Pause
) -> None:
    """Raises SlotRefused unless the copy has everything in the witness: nothing may be opened without that."""
    if copying is None:
        raise short
    answer = await _asked(lambda: copying.keeper.look(of, timeout=OPEN_S), copying.wait_s, pause)
    if answer is None:
        raise _silent(short)
    if answer.status is not Status.OK or not at_least(answer.ends, witness):
        raise short


def _silent(short: SlotRefused) -> CopySilent:
    return CopySilent(
        f"{short}; or, if only the keeper of its copy is down, start it again once the keeper is up: it then takes  "
        "the missing output from the copy"
    )


async def _open_copy(
    copying: Copying, of: CopyOf, incarnation: int, store: SlotStore, pause: Pause, work: Work, *, needed: bool
) -> Witness | None:
    """Fences earlier incarnations at the keeper, and fetches what only the copy has. Returns the copy's ends;
    ``None`` if the keeper does not answer now.

    With ``None`` the copy's content is unknown; the slot has all output that was ever published, and continues
    without the copy (rule 14).
    """
    wait_s = copying.wait_s if needed else 0.0
    answer = await _asked(lambda: copying.keeper.open(of, incarnation, timeout=OPEN_S), wait_s, pause)
    if answer is None or answer.status is Status.REFUSED:
        return None
    if answer.status is not Status.OK:
        state = "sealed" if answer.status is Status.SEALED else "opened by another process"
        raise SlotRefused(
            f"slot {of.slot}: its copy is {state} (incarnation {answer.newest}, this one is {incarnation}); if the "
            "slot was retired, start with another slot name and an empty directory"
        )
    wanted = await work(partial(store.lacks, answer.ends))
    if wanted:
        taken = await store.take(wanted, copying.keeper, of, pause, replaces=needed)
        if taken is None:
            return None  # the shipper reports it until an operator sets that copy aside
        log.warning("missing output was taken from the copy", slot=of.slot, files=taken)
    return answer.ends


async def _asked(ask: Callable[[], Awaitable[CopyAnswer | None]], wait_s: float, pause: Pause) -> CopyAnswer | None:
    """Repeats a request for about ``wait_s`` seconds until it is answered; ``None`` if it is not."""
    waited = 0.0
    while True:
        answer = await ask()
        if answer is not None or waited >= wait_s:
            return answer
        await pause(ASK_AGAIN.first)
        waited += OPEN_S + ASK_AGAIN.first


def shipping(
    copying: Copying, slot: Slot, incarnation: int, store: SlotStore, clock: Clock, ends: Witness | None
) -> CopyShipping:
    """Returns the shipping of a slot's output. Call it after ``recover``. ``ends``: as returned by ``open_slot``."""
    shipper = Shipper(incarnation, wait_s=copying.wait_s, required=copying.required, now=clock.monotonic())
    if ends is not None:
        shipper.opened(ends)
    return CopyShipping(
        shipper,
        copying,
        CopyOf(slot.datacentre, slot.name),
        store.copied_output(),
        lambda: store.local_files,
        lambda: store.shown,
        clock,
    )


async def to_its_end(work: Callable[[], _T]) -> _T:
    """Runs ``work`` in a thread. A cancellation waits until it ends, as the lock must not be released while it writes
    (rule 6).
    """
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
