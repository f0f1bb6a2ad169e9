"""``photon spark join``: sets up and runs ``spark/pipeline`` as the deployment file says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from photon.adapters.join_adapters import adapter_of
from photon.adapters.loader import code_of
from photon.assembly.engines import output_limits
from photon.assembly.registry import agree, rule_of
from photon.assembly.room import Room
from photon.assembly.samples import same_samples
from photon.assembly.verdict_rule import Unmatched, named, verdict_rule
from photon.config.clock import NS_PER_S
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.file_lock import alone
from photon.config.loader import load
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics
from photon.config.roles import Role
from photon.config.settings import Settings
from photon.config.stopping import end, until
from photon.config.structured import get_logger
from photon.config.units import seconds
from photon.dispatcher.process import state_rule
from photon.dispatcher.retry import Patience
from photon.dispatcher.status import details_of, reads
from photon.fleet.access import pipeline_named
from photon.fleet.explain.dispatchers import foreign_logs
from photon.fleet.explain.service import EXPLAIN, Explainer, ExplainService, of_join_on_spark
from photon.idregistry.api import Digester
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import Traced
from photon.joiner.slot.lock import LOCK_NAME
from photon.objects.costs import put_costs
from photon.objects.paths import ObjectPath, placed
from photon.operations.spark_backfill import registry_place
from photon.outputs.output_places import EXPORTS_DIRECTORY, SLOTS_DIRECTORY
from photon.spark.pipeline.planner import PlanLimits
from photon.spark.pipeline.query import JoinQuery
from photon.spark.pipeline.report import DriverReport
from photon.spark.pipeline.run import Application, JoinRun, Outcome, Progress, told
from photon.spark.pipeline.tasks import JoinPlace
from photon.spark.session import LEAN, check_present, has_ended, session
from photon.spark.sources import pipeline_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER_S = 1.0
SESSION_S = 2.0  # interval of checks whether the user's session has ended
TRACE_S = 2.0  # time limit of the registry's answer about one event
REDO = "redo"  # exists in the state of a joiner's slot

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JoinOptions:
    once: bool
    trigger_s: float = TRIGGER_S
    master: str | None = None
    spark: Mapping[str, str] | None = None  # Spark's own settings
    session: SparkSession | None = None  # the user's; `None` makes one when the first large batch needs it


def start(
    settings: Settings,
    base: Path,
    datacentre: str | None,
    options: JoinOptions,
    say: Callable[[str], object],
    fail: Callable[[BaseException], object] = lambda error: None,
) -> JoinQuery:
    """Starts ``join`` in a separate thread, for the command, notebooks and programs. ``fail``: receives its error at
    once. Raises UsageError."""
    name, _ = pipeline_named(settings, datacentre)

    async def run(stop: asyncio.Event, tell: Callable[[Progress], None]) -> Outcome:
        def done(progress: Progress) -> None:
            tell(progress)
            if options.session is None:  # for programs
                say(told(progress))

        async with _session_lives(options.session, stop):
            return await join(Room(settings, base, stop, name), options, say, done)

    return JoinQuery(f"photon join {name}", run, fail)


def in_session(spark: SparkSession, config: Path, datacentre: str | None, *, once: bool, trigger: str) -> JoinQuery:
    """Implements ``photon.spark.join``: runs the join in an existing Spark session. Raises UsageError."""
    try:
        trigger_s = seconds(trigger)
    except ValueError as wrong:
        raise UsageError(f"trigger={trigger!r}: {wrong}") from None
    settings = load(config, environment=os.environ)
    options = JoinOptions(once=once, trigger_s=trigger_s, session=spark)

    def fail(error: BaseException) -> None:
        log.error("the join has ended", problem=str(error), datacentre=datacentre)

    return start(settings, config.absolute().parent, datacentre, options, log.info, fail)


@asynccontextmanager
async def _session_lives(spark: SparkSession | None, stop: asyncio.Event) -> AsyncIterator[None]:
    """Sets ``stop`` and raises PhotonError once the Spark session has ended, as small batches would not notice."""
    if spark is None:
        yield
        return

    async def watch() -> bool:
        while not await until(stop, SESSION_S):
            if await asyncio.to_thread(has_ended, spark):
                stop.set()
                return True
        return False

    watching = asyncio.create_task(watch())
    try:
        yield
        if watching.done() and watching.result():
            raise PhotonError("the Spark session has ended, and so has the join; start it again in a new session")
    finally:
        await end([watching])


async def serve_join(room: Room) -> None:
    """Serves the join as a process. Raises like ``join``."""
    await join(room, JoinOptions(once=False), log.info, lambda progress: log.info(told(progress)))


async def join(
    room: Room, options: JoinOptions, say: Callable[[str], object], tell: Callable[[Progress], object]
) -> Outcome:
    """Runs the join; ``tell`` receives the progress of each batch. After a kill, run it again. Raises UsageError,
    CannotListen, PhotonError, OSError."""
    check_present()
    settings, base, name, pipeline = room.settings, room.base, room.datacentre, room.pipeline
    state, output = placed(base, pipeline.state).absolute(), placed(base, pipeline.output).absolute()
    for setting, path in (("state", state), ("output", output)):
        if isinstance(path, ObjectPath):
            raise UsageError(f"datacentre.{name}.{setting} = {path}: must be a directory mounted by all machines")
    run = _run(settings, base, name, options, state, output)
    with held(Path(run.place.state)):
        tls = room.tls(Role.SPARK)

        @asynccontextmanager
        async def serving(at_work: Application) -> AsyncIterator[None]:
            """Serves health and metrics; has no address with --once, or if services join this datacentre."""
            own = pipeline.on_spark and not options.once
            address = pipeline.at("spark")[0] if own else None
            async with room.answering("spark", address, _metrics(room, at_work), tls, also):
                room.up()
                yield

        async with room.registry(tls) as registry:
            also = partial(EXPLAIN.add, servicer=ExplainService(_explainer(room, registry)))
            if not await agree(registry, pipeline.join, rule_of(settings, base, pipeline.join), room.stop):
                return Outcome(0, {}, 0)
            await same_samples(settings, base, pipeline.join, name, registry)
            verdicts = Unmatched(
                registry, room.clock,
                join=pipeline.join, datacentre=name, process=named("spark", name),
                rule=verdict_rule(settings.join[pipeline.join], room.adapter()),
                others=(named("eventstore", name),),
            )  # fmt: skip
            if not await verdicts.begin(room.stop):
                return Outcome(0, {}, 0)
            app, own = f"photon join {pipeline.join} in {name}", {**LEAN, **pipeline.spark, **(options.spark or {})}

            def spark() -> SparkSession:
                return options.session or session(app, master=options.master, settings=own)

            asking = asyncio.create_task(verdicts.run(room.stop))
            try:
                return await Application(
                    run, spark, registry, RealDisk(), say, tell, room.stop, serving, lambda: verdicts.waits
                )()  # fmt: skip
            finally:
                await end([asking])


def _explainer(room: Room, registry: RoutedRegistry) -> Explainer:
    logs = foreign_logs(room.settings, room.base, room.datacentre, room.logs("foreign"), room.state)

    async def trace(event_id: bytes, time_ns: int) -> Traced | Refusal:
        return await registry.recovery.trace(room.digester.digest(event_id), time_ns, timeout=TRACE_S)

    return of_join_on_spark(room.state, room.output, room.pipeline.spark_slot(room.datacentre), logs, trace)


def _metrics(room: Room, at_work: Application) -> ProcessMetrics:
    join, clock, driver = room.pipeline.join, room.clock, at_work.driver
    report, code = DriverReport(driver, at_work.lost, at_work.search), code_of(room.adapter())

    def details() -> dict[str, Any]:
        return {**details_of(join, report, clock), "adapter": code}

    limit = room.settings.limits.retry_store
    space = free_space({"state": room.state, "output": room.output})
    figures = reads(join, lambda: report, clock, retry_limit=limit)
    return ProcessMetrics([figures, report.put, space, put_costs], details)


@contextmanager
def held(slot: Path) -> Iterator[None]:
    """Holds the slot's lock, which excludes other processes on this machine. Raises UsageError."""
    if (slot / REDO).exists():
        raise UsageError(f"{slot}: is the state of a joiner; give that joiner another name")
    slot.mkdir(parents=True, exist_ok=True)
    with alone(slot / LOCK_NAME, f"{slot}: another process works on this slot; wait until it ends"):
        yield


def _run(settings: Settings, base: Path, name: str, options: JoinOptions, state: Path, output: Path) -> JoinRun:
    pipeline = settings.datacentre[name]
    if settings.output.copies > 1:
        raise UsageError("output.copies = 2: a join on Spark keeps no copies; set it to 1, or join with services")
    configured, limits = settings.join[pipeline.join], settings.limits
    sources = pipeline_sources(settings, base, pipeline.join, datacentres=[name])
    adapter = adapter_of(settings, pipeline.join, base)
    matching, digester = adapter.matching, Digester(sources.join.key, pipeline.join)
    after, uncertainty = configured.unmatched_after, float(settings.clock.uncertainty)
    patience = Patience(
        unmatched_after_ns=None if after is None else int(after * NS_PER_S),
        slack_ns=int((uncertainty + configured.primary_max_delay) * NS_PER_S),
        whole_sets=matching.whole_sets,
        after_ns=matching.after_ns or 0,
    )
    slot = pipeline.spark_slot(name)
    place = JoinPlace(
        join=sources.join,
        foreign=sources.foreign[0],
        registry=registry_place(settings, base, name),
        eventstore=pipeline.eventstore,
        state=str(state / SLOTS_DIRECTORY / slot),
        slot=slot,
        datacentre=name,
        patience=patience,
        joined_at=settings.output.joined_at,
    )
    return JoinRun(
        place=place,
        output=output,
        exports=state / EXPORTS_DIRECTORY,
        limits=PlanLimits(
            max_record=int(limits.record),
            last_line_after_s=float(configured.last_line_after),
            waiting_bytes=int(limits.retry_store),
        ),
        shown=output_limits(settings),
        once=options.once,
        trigger_s=options.trigger_s,
        uncertainty_ns=int(uncertainty * NS_PER_S),
        rule=state_rule(pipeline.join, adapter, digester),
    )
