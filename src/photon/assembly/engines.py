"""Builds a joiner and a dispatcher from settings, for service processes and ``photon join``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter
from photon.adapters.envelope import Envelope
from photon.adapters.logs.watching import Watch
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.settings import Settings
from photon.config.structured import get_logger
from photon.dispatcher import process
from photon.dispatcher.discovery import Discovery
from photon.dispatcher.engine import Begun, DispatcherEngine, Measure, Policy
from photon.dispatcher.engine import Options as DispatcherOptions
from photon.dispatcher.engine import Surroundings as DispatcherSurroundings
from photon.dispatcher.homes import HeadStart, Homes
from photon.dispatcher.limits import Limits as DispatcherLimits
from photon.dispatcher.lookups import LookUpPolicy
from photon.dispatcher.partitions import ALL, Partition
from photon.dispatcher.progress import AskProgress
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import Reached
from photon.eventstore.api import ArrivalNotices, EventStore
from photon.idregistry.api import Digester, Registry, Slot
from photon.joiner.api import Joiner
from photon.joiner.copies.shipping import Copying
from photon.joiner.engine import Bounds, JoinerEngine, JoinerLimits
from photon.joiner.opening import Surroundings
from photon.joiner.shell import Die, die
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.slot import AGES, Ages, SlotPaths
from photon.joiner.verdicts import envelope_lines

NONCE_BYTES = 16
# An event whose primary is missing holds back its log's offset for this long, then goes to the retry store.
HOLD_S = 1.0

# Share of ``limits.latency`` for which foreign lines are gathered into a batch; the rest is for transit.
GATHERED = 0.8

log = get_logger(__name__)


def joiner_limits(settings: Settings) -> JoinerLimits:
    limits = settings.limits
    return JoinerLimits(
        bounds=Bounds(ids=limits.registrations_in_flight, redo_bytes=limits.redo_log), output=output_limits(settings)
    )


def output_limits(settings: Settings) -> OutputLimits:
    output = settings.output
    return OutputLimits(roll_bytes=output.roll_size, roll_after_s=output.roll_age, compress=output.compress == "gzip")


def joiner_engine(
    settings: Settings,
    adapter: Adapter,
    slot: Slot,
    paths: SlotPaths,
    *,
    registry: Registry,
    store: EventStore,
    disk: Disk,
    clock: Clock,
    limits: JoinerLimits | None = None,
    ends: Die = die,
    ages: Ages = AGES,
    copying: Copying | None = None,
    withholds: Callable[[], str] = lambda: "",
) -> JoinerEngine:
    """Builds a joiner without starting it. ``ends``: called when the joiner fails, to end the process; ``copying``:
    keeper of its output's copy; ``withholds``: as for ``JoinerEngine``."""
    envelope = Envelope(with_joined_at=settings.output.joined_at, adapter=adapter)
    world = Surroundings(registry, store, disk, clock, ends, lambda: os.urandom(NONCE_BYTES))
    return JoinerEngine(
        slot,
        paths,
        world,
        adapter,
        envelope_lines(envelope),
        limits=limits or joiner_limits(settings),
        check_payloads=type(adapter) is not ConfiguredAdapter,  # a configured adapter's payloads are always JSON
        ages=ages,
        copying=copying,
        withholds=withholds,
    )


@dataclass(frozen=True, slots=True)
class DispatcherPlan:
    join: str
    datacentre: str
    foreign: Path
    output: Path
    state: Path
    once: bool = False
    keep_pending: bool = False
    # True if the event ids are a guess; the dispatcher then looks for conflicting lines with the same id.
    guessed_ids: bool = False
    look_ups: LookUpPolicy = LookUpPolicy.NEVER
    shared_with: Sequence[str] = ()  # names of other datacentres that join the same events
    watch: Watch = Watch.AUTO
    partition: Partition = ALL


def open_dispatcher(
    settings: Settings,
    plan: DispatcherPlan,
    adapter: Adapter,
    digester: Digester,
    *,
    joiners: Sequence[Joiner],
    progress: AskProgress,
    registry: Registry | None,
    disk: Disk,
    clock: Clock,
    measure: Measure | None = None,
    discovery: Discovery | None = None,
    waking: ArrivalNotices | None = None,
    reached: Reached | None = None,
    begun: Begun | None = None,
) -> AbstractContextManager[DispatcherEngine]:
    """Opens a dispatcher with its database and follower; the context closes them. Raises StateError,
    LogDirectoryError.

    ``measure``: the registry's commit time, for the head start if it is not configured; ``waking``: arrival notices
    from the event store; ``reached``: as for ``process.open_dispatcher``; ``begun``: as in ``Surroundings``.
    """
    configured, limits, output = settings.join[plan.join], settings.limits, settings.output
    after, gather_s = configured.unmatched_after, 0.0 if plan.once else GATHERED * limits.latency
    plan.state.mkdir(parents=True, exist_ok=True)
    policy = Policy(
        Patience(
            unmatched_after_ns=None if after is None else int(after * 1e9),
            slack_ns=int((settings.clock.uncertainty + configured.primary_max_delay) * 1e9),
            once=plan.once,
            keep_pending=plan.keep_pending,
            whole_sets=adapter.matching.whole_sets,
            after_ns=adapter.matching.after_ns or 0,
        ),
        DispatcherLimits(
            batch_events=limits.batch_events,
            hold_s=HOLD_S,
            window_bytes=limits.read_ahead,
            hold_bytes=limits.read_ahead * 3 // 4,
            retry_store_bytes=limits.retry_store,
            catch_up_share=settings.dispatcher.catch_up_share,
            gather_s=gather_s,
        ),
        DispatcherOptions(
            once=plan.once,
            in_flight=limits.batches_in_flight,
            look_ups=plan.look_ups,
            identical_copies=configured.identical_copies,
            uncertainty_ns=int(settings.clock.uncertainty * 1e9),
            guessed_ids=plan.guessed_ids,
        ),
    )
    head_start = settings.dispatcher.head_start
    homes = Homes(plan.datacentre, plan.shared_with, HeadStart(head_start)) if plan.shared_with else None
    return process.open_dispatcher(
        process.Places(
            plan.foreign,
            plan.output,
            plan.state,
            configured.foreign_files,
            limits.record,
            plan.watch,
            configured.last_line_after,
            plan.partition,
        ),
        policy,
        DispatcherSurroundings(
            join=plan.join,
            datacentre=plan.datacentre,
            adapter=adapter,
            digester=digester,
            joiners=joiners,
            progress=progress,
            registry=registry,
            envelope=Envelope(with_joined_at=output.joined_at, adapter=adapter),
            clock=clock,
            random=Random().random,
            homes=homes,
            measure=measure if head_start is None else None,
            discovery=discovery,
            compare_first=type(adapter) is not ConfiguredAdapter,
            waking=None if adapter.matching.whole_sets else waking,  # a single record does not make a set final
            begun=begun,
        ),
        disk,
        reached=reached,
    )
