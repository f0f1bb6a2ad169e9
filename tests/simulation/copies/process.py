"""A joiner process whose output is copied: the joiner's own, with the production start and shipper."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from photon.joiner.copies.api import CopyOf
from photon.joiner.copies.kept import KeptCopy
from photon.joiner.copies.shipper import Shipper, ShipperLimits
from photon.joiner.copies.shipping import Copying, CopyShipping
from photon.joiner.copies.taking import CopySilent
from photon.joiner.opening import open_slot
from photon.joiner.slot.slot import SlotPaths
from photon.joiner.slot.witness import WitnessKeeper
from tests.simulation.copies.keeper import KeeperClient, KeeperMachine
from tests.simulation.joiner.process import LIMITS, OUTPUT, STATE, Process, Site, Variant, _no_pause
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.registry import Call

if TYPE_CHECKING:
    from tests.simulation.copies.world import CopyWorld


@dataclass(frozen=True)
class CopyVariant(Variant):
    """The classes that run."""

    mixes: bool = False
    shipper: type[Shipper] = Shipper
    kept: type[KeptCopy] = KeptCopy
    seals: bool = True
    clears: bool = True
    slow: tuple[float, ...] = (0.0, 0.3, 0.8)  # share of the extensions that come late, by schedule
    ships: tuple[float, ...] = (0.04, 0.3)  # share of a process's steps that are the shipper's, by schedule
    puts_back: float = 0.3  # share of the schedules in which older copies of a disk are put back
    loses: float = 0.5  # share of those in which a slot is lost permanently
    cuts_off: float = 0.5  # share of these in which the slot is only believed to be lost


@dataclass
class CopySite(Site):
    """One machine, and the keeper of its slot's copy on another."""

    keeper: KeeperMachine = field(kw_only=True)
    lost: bool = False  # its disk is permanently gone
    cut_off: bool = False  # it is believed to be lost, and runs on; once its process has ended, no other is started
    fell_back: bool = False  # it has published something that the copy did not have
    took: int = 0  # files that a start took from the copy
    set_aside: int = 0


class Refused(OSError):
    """The process ends and is restarted."""


class Surroundings:
    """The parts of the world that a start needs."""

    def __init__(self, process: CopyProcess) -> None:
        self.registry: Any = process.registry
        self.disk: Any = process.site.disk
        self.draw_nonce: Callable[[], bytes] = process.world.nonce
        self.clock: Any = process


class CopyProcess(Process):
    """One joiner process."""

    world: CopyWorld
    site: CopySite

    def __init__(self, world: CopyWorld, site: CopySite) -> None:
        self.shipping: CopyShipping | None = None
        self.shipper: Shipper | None = None
        self.step: Coroutine[Any, Any, bool] | None = None
        self.step_call: Call | None = None
        self.in_contact = False  # its start has heard from the copy
        super().__init__(world, site)

    def monotonic(self) -> float:
        return self.world.now

    def now_ns(self) -> int:
        return int(self.world.now * 1e9)

    async def _open(self) -> None:
        world, site, slot = self.world, self.site, self.site.slot
        site.disk.make_dir(STATE)
        self.store.ships = True
        copying = Copying(KeeperClient(world.copy_network, slot), world.wait_s, world.required)
        of = CopyOf(slot.datacentre, slot.name)
        paths, around = SlotPaths(STATE, OUTPUT), Surroundings(self)
        try:
            ages = world.ages_of(site)
            opened, ends = await open_slot(
                slot, paths, self.store, around, copying, pause=_no_pause, work=_at_once, ages=ages
            )
        except CopySilent as silent:
            world.say(f"{site.name} is refused until its keeper is back")
            raise Refused from silent
        self.in_contact = ends is not None
        if self.store.taken:
            world.say(f"{site.name} takes from its copy: {self.store.taken}")
            world.taken(site)
        recovered = self.store.recover(accept_damaged_log=site.accepts_damage)
        site.accepts_damage = False
        shipper = world.copy_variant.shipper(
            opened.incarnation,
            wait_s=world.wait_s,
            required=world.required,
            now=world.now,
            limits=ShipperLimits(request_bytes=world.request_bytes),
        )
        if ends is not None:
            shipper.opened(ends)
        self.shipper = shipper
        self.shipping = CopyShipping(
            shipper,
            copying,
            of,
            self.store.copied_output(),
            lambda: self.store.local_files,
            lambda: self.store.shown,
            self,
            in_thread=_called,
        )
        self.keeper = WitnessKeeper(slot.name, opened.incarnation, opened.witness)
        while not self.keeper.end:
            to = self.keeper.due(self.shipping.bound(self.store.witness, self.keeper.end))
            assert to is not None
            self._heard(await self.registry.extend_witness(slot.name, opened.incarnation, self.keeper.end, to))
        self.registry.announce(slot, [*recovered.incarnations, opened.incarnation])
        world.say(f"{site.name} serves as {opened.incarnation}, redoes {sum(len(r) for _, r in recovered.kept)}")
        if not self.in_contact:
            world.say(f"{site.name} has not heard of its copy")
        site.unrepaired = False
        world.accepted(site, opened.incarnation)
        self.core = world.variant.core(opened.incarnation, LIMITS)
        self.do(self.core.start(recovered.kept))

    @property
    def serves(self) -> bool:
        return self.core is not None and self.opening is None

    def witness(self) -> bool:
        if self.world.faults and self.world.random.random() >= self.world.witnesses:
            return False
        if self.keeper is None or self.extending is not None or self.shipping is None or self.shipper is None:
            return False
        to = self.keeper.due(self.shipping.bound(self.store.witness, self.keeper.end))
        if to is None:
            return False
        if self.shipper.fallback:
            self.world.say(f"{self.site.name} shows what is durable there alone")
            self.site.fell_back = True
        self.extending = self.registry.start_extension(self.keeper.incarnation, self.keeper.end, to)
        return True

    def maintain(self) -> bool:
        assert self.shipping is not None
        self.store.hold(self.shipping.held)
        return super().maintain()

    def ship(self) -> None:
        """One step of the shipper: begins what is due, or continues it."""
        if self.shipping is None:
            return
        if self.step is None:
            self.step = self.shipping.step()
        elif self.step_call is not None:
            return
        try:
            self.step_call = self.step.send(None)
        except StopIteration:
            self.step = None
            self._shipped()

    def _shipped(self) -> None:
        assert self.shipper is not None
        assert self.shipping is not None
        if self.shipping.ended:
            self.world.say(f"{self.site.name} stops: {self.shipping.ended}")
            raise PowerOff
        if self.shipper.trouble:
            self.world.no_copy(self)
        elif self.shipper.ends is not None and not self.shipper.behind(self.store.local_files):
            self.site.fell_back = False

    def resume(self, call: Call) -> None:
        if call is self.step_call:
            self.step_call = None
            self.ship()
        else:
            super().resume(call)

    def calls(self) -> list[Call]:
        return super().calls() + ([self.step_call] if self.step_call is not None else [])

    def bury(self) -> None:
        super().bury()
        if self.step is not None:
            self.step.close()


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


async def _called(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)
