"""One simulated machine and the joiner process in its slot, doing the asyncio shell's work one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.config.back_off import BackOff
from photon.idregistry.api import Opened, Slot
from photon.idregistry.witness import Witness, Witnessed
from photon.joiner.api import ForeignEvent, Outcome
from photon.joiner.core import (
    Append,
    CoreLimits,
    Insert,
    Instruction,
    Redone,
    Release,
    Reply,
    SlotCore,
    Stop,
    SyncOutput,
    Write,
)
from photon.joiner.opening import register_standing
from photon.joiner.rows import Rows
from photon.joiner.slot.identity import open_incarnation, read_state
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.slot import STATE_NAME, SlotPaths, SlotStore
from photon.joiner.slot.witness import WitnessKeeper, ask_witness
from photon.joiner.verdicts import Decided, merge_reply
from photon.verifier.recovery import RecoveryLimits, RecoveryReport, SlotRecovery
from photon.verifier.verifier import Verifier, VerifierLimits
from tests.simulation.world.disk import Copy, PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.registry import Call, ModelRegistry, SimulatedRegistry

if TYPE_CHECKING:
    from tests.simulation.joiner.world import World

STATE = Path("/slot")
OUTPUT = Path("/out")
RECOVERY = RecoveryLimits(page_ids=1, retry_s=0.0, again=BackOff(first=2.0, most=4.0))
LIMITS = CoreLimits(sync_output_after_s=3.0, carry_over_behind_bytes=1500, open_frames_max=6)
VERDICTS = (Outcome.JOINED, Outcome.FILTERED, Outcome.UNMATCHED, Outcome.REJECTED, Outcome.TAKEN, Outcome.LATE)


@dataclass(frozen=True)
class Variant:
    """The classes that run: production ones, or one of them with a rule removed."""

    core: type[SlotCore] = SlotCore
    store: type[SlotStore] = SlotStore
    verifier: type[Verifier] = Verifier
    recovery: type[SlotRecovery] = SlotRecovery
    registry: type[ModelRegistry] = ModelRegistry
    open: Callable[..., Coroutine[Any, Any, Opened]] = open_incarnation
    witness: bool = True
    ages: bool = True
    mixes: bool = True  # parts of a disk are restored from an older copy, not only the whole
    # Share of the schedules with one slot and copies in which the registry lies next to the slot.
    own_registry: float = 0.3
    unique_ids: bool = True
    locks: bool = True
    rots: float = 0.3  # share of the schedules in which redo logs rot
    bounded: bool = False  # the join has bounds, and some lines are outside them
    sets: bool = False  # events are joined with several primaries each, and have a record for each primary
    # Some batches write unmatched events among the joined ones, others separately: the setting changes.
    inline: bool = False
    late_inserts: float = 0.0  # share of inserts that come once more even after the faults


@dataclass
class Site:
    """One machine: a disk with one slot, its dispatcher, and what its readers have seen."""

    name: str
    disk: FaultyDisk
    slot: Slot
    processes: list[Process] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)  # lines without a verdict
    outcome: dict[int, Outcome] = field(default_factory=dict)
    durable_seen: dict[str, bytes] = field(default_factory=dict)
    whole_seen: dict[str, bytes] = field(default_factory=dict)
    copy: Copy | None = None  # a copy of the whole disk, made some time ago
    newest: Copy | None = None  # the disk when the older copy was restored; None once a joiner serves
    newest_incarnation: int = 0  # incarnation the registry knew then
    reached: tuple[int, int] | None = None  # durable length of the redo log when its dispatcher was last answered
    registry_copy: dict[str, Any] = field(default_factory=dict)
    # The registry as of those copies, if it lies next to the slot.
    newest_registry: dict[str, Any] = field(default_factory=dict)
    # Generations of ids that the dispatcher found on the list of reopened ones.
    generations: dict[bytes, int] = field(default_factory=dict)
    rotted: bool = False  # a bit of its redo log was flipped, or the whole log removed, at some time
    put_back: bool = False  # an older copy of the disk was restored at some time
    recovered: int = 0  # ids of this slot that were given up
    accepts_damage: bool = False  # the operator's word for the next start
    # The power was cut and no joiner has repaired the tails since, so whole lines are not promised.
    unrepaired: bool = False


@dataclass
class Asked:
    """A batch that a dispatcher waits for, or no longer waits for."""

    lines: list[int]
    events: list[ForeignEvent]
    decided: Decided


class Process:
    """One joiner process."""

    def __init__(self, world: World, site: Site) -> None:
        self.world = world
        self.site = site
        self.registry = SimulatedRegistry(world.network, site.slot)
        self.alive = True
        self.core: SlotCore | None = None
        self.keeper: WitnessKeeper | None = None
        self.extending: Call | None = None
        self.store = world.variant.store(
            site.disk,
            SlotPaths(STATE, OUTPUT),
            site.slot.name,
            output_limits=OutputLimits(
                roll_bytes=world.roll_bytes, roll_after_s=1e9, compress=world.forms.random() < world.compressed
            ),
            segment_bytes=world.segment_bytes,
        )
        self.verifier = world.variant.verifier(
            site.disk,
            STATE,
            OUTPUT,
            world.digester,
            self.registry,
            limits=VerifierLimits(block_bytes=300, clear_ids=2),
        )
        self.recovery = world.variant.recovery(site.disk, STATE, self.registry, pause=_no_pause, limits=RECOVERY)
        self.appends: list[tuple[int, Rows]] = []
        self.writes: list[Write] = []
        self.releases: list[int] = []
        self.inserts: dict[int, Call] = {}
        self.asked: dict[int, Asked] = {}
        self.sync_wanted = False
        self.redone: Redone | None = None
        self.last_write = 0
        self.opening: Coroutine[Any, Any, None] | None = self._open()
        self.verifying: Coroutine[Any, Any, Any] | None = None
        self.opening_call: Call | None = None
        self.verifying_call: Call | None = None
        self.recovering: Coroutine[Any, Any, RecoveryReport] | None = None
        self.recovering_call: Call | None = None

    async def _open(self) -> None:
        self.site.disk.make_dir(STATE)
        slot = self.site.slot
        variant = self.world.variant
        seen: Witness = ()
        if variant.witness:
            known = await ask_witness(self.registry, slot.name, _no_pause)
            seen = known.witness
            self.store.check_witness(seen)
            if variant.ages:
                state = read_state(self.site.disk, STATE / STATE_NAME, slot)
                self.store.check_age(state, known, ages=self.world.ages_of(self.site))
        opened = await variant.open(
            self.site.disk, STATE / STATE_NAME, slot, self.registry, draw_nonce=self.world.nonce, pause=_no_pause
        )
        incarnation = opened.incarnation
        if variant.witness and opened.witness != seen:
            self.store.check_witness(opened.witness)
        if variant.witness and variant.ages and self.world.own_registry:
            await register_standing(slot, incarnation, self.store, self.registry, _no_pause)
        recovered = self.store.recover(accept_damaged_log=self.site.accepts_damage)
        self.site.accepts_damage = False
        if variant.witness:
            self.keeper = WitnessKeeper(slot.name, incarnation, opened.witness)
            while not opened.witness and not self.keeper.end:
                to = self.keeper.due(self.store.witness)
                assert to is not None
                self._heard(await self.registry.extend_witness(slot.name, incarnation, self.keeper.end, to))
        self.registry.announce(slot, [*recovered.incarnations, incarnation])
        self.world.say(f"{self.site.name} serves as {incarnation}, redoes {sum(len(r) for _, r in recovered.kept)}")
        self.site.unrepaired = False
        self.world.accepted(self.site, incarnation)
        self.core = self.world.variant.core(incarnation, LIMITS)
        self.do(self.core.start(recovered.kept))

    # -- what the shell does -----------------------------------------------------------------------------------
    def do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            match each:
                case Append(frame, rows):
                    self.appends.append((frame, rows))
                case Insert(frame, inserts):
                    self.inserts[frame] = self.registry.start_insert(inserts)
                case Write():
                    self.writes.append(each)
                case SyncOutput():
                    self.sync_wanted = True
                case Reply(frame):
                    self._reply(self.asked.pop(frame, None), each)
                case Release(frames):
                    self.releases += frames
                case Redone():
                    self.redone = each
                case Stop(reason):
                    self.world.say(f"{self.site.name} stops: {reason}")
                    raise PowerOff

    def _reply(self, asked: Asked | None, reply: Reply) -> None:
        if asked is None:
            return
        self.site.reached = self.store.redo_end
        answers = merge_reply(asked.events, asked.decided, reply, self.site.slot.datacentre)
        if self.world.random.random() < self.world.loss:
            return  # the dispatcher never hears of it
        for line, outcome in zip(asked.lines, map(Outcome, answers.verdicts.outcomes.tolist()), strict=True):
            if outcome in VERDICTS:
                self.site.pending.discard(line)
                self.site.outcome.setdefault(line, outcome)

    def redo_work(self) -> bool:
        appends, self.appends = self.appends, []
        releases, self.releases = self.releases, []
        if releases:
            self.store.release(releases)
        if appends:
            self.store.log(appends)
            self.do(self.serving.redo_synced(appends[-1][0]))
        return bool(appends or releases)

    def output_work(self, *, sync: bool) -> bool:
        writes, self.writes = self.writes, []
        for write in writes:
            self.store.write(write.chunks, self.world.now)
            self.last_write = write.number
            self.do(self.serving.written(write.number, sum(len(data) for _, data in write.chunks)))
        if sync:
            self.sync_wanted = False
            self.store.sync_output(self.world.now)
            self.do(self.serving.output_synced(self.last_write))
        return bool(writes) or sync

    def publish_redone(self) -> None:
        if self.redone is not None:
            self.store.publish_redone(self.redone.upto)
            self.world.say(f"{self.site.name}: nothing is left of incarnations up to {self.redone.upto}")
            self.redone = None

    def witness(self) -> bool:
        """Asks to extend the witness to the durable length."""
        keeper = self.keeper
        if keeper is None or self.extending is not None:
            return False
        to = keeper.due(self.store.witness)
        if to is None:
            return False
        self.extending = self.registry.start_extension(keeper.incarnation, keeper.end, to)
        return True

    def _heard(self, known: Witnessed | None) -> None:
        assert self.keeper is not None
        if reason := self.keeper.heard(known):
            self.world.say(f"{self.site.name} stops: {reason}")
            raise PowerOff
        if known is not None:
            self.store.show(self.keeper.end)

    def maintain(self) -> bool:
        names = self.store.cleared()
        for name in names:
            self.world.say(f"{self.site.name} makes {name} final")
            self.store.finish(name)
            self.store.forget([name])
        return bool(names)

    def verify(self) -> bool:
        """One step of the verifier: begins a pass, or continues it."""
        if self.verifying is None:
            self.verifying = self.verifier.run_once()
        elif self.verifying_call is not None:
            return False
        try:
            self.verifying_call = self.verifying.send(None)
        except StopIteration:
            self.verifying = None
            return False
        return True

    def recover(self) -> None:
        """One step of recovery by token: begins a look, or continues it."""
        if self.recovering is None:
            self.recovering = self.recovery.run_once(self.world.now)
        elif self.recovering_call is not None:
            return
        try:
            self.recovering_call = self.recovering.send(None)
        except StopIteration as done:
            self.recovering = None
            self.site.recovered += done.value.recovered
            if done.value.recovered or done.value.unknown:
                self.world.say(f"{self.site.name} gives up {done.value.recovered}: {done.value.examples}")

    @property
    def serving(self) -> SlotCore:
        assert self.core is not None
        return self.core

    def resume(self, call: Call) -> None:
        """The world has finished one of this process's calls."""
        if call.what == "open":
            self.world.say(f"{self.site.name} hears {call.result} for {call.rows}")
        if call is self.opening_call:
            self.opening_call = None
            self.step_opening()
        elif call is self.verifying_call:
            self.verifying_call = None
            self.verify()
        elif call is self.recovering_call:
            self.recovering_call = None
            self.recover()
        elif call is self.extending:
            self.extending = None
            self._heard(call.result)
        else:
            frame = next(frame for frame, each in self.inserts.items() if each is call)
            del self.inserts[frame]
            self.do(self.serving.answered(frame, call.result, self.world.now))

    def step_opening(self) -> None:
        assert self.opening is not None
        try:
            self.opening_call = self.opening.send(None)
        except StopIteration:
            self.opening = None

    def calls(self) -> list[Call]:
        found = list(self.inserts.values())
        others = (self.opening_call, self.verifying_call, self.recovering_call, self.extending)
        return found + [call for call in others if call is not None]

    def bury(self) -> None:
        self.alive = False
        for coroutine in (self.opening, self.verifying, self.recovering):
            if coroutine is not None:
                coroutine.close()


async def _no_pause(_: float) -> None:
    return None
