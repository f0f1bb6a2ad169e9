"""``photon serve verifier``: runs one pipeline's continuous verifier. One process verifies all its slots."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from photon.adapters.contract import Adapter
from photon.assembly.registry import admitted
from photon.assembly.room import Room
from photon.config.disk import RealDisk
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics
from photon.config.settings import Settings
from photon.config.structured import get_logger
from photon.fleet.access import pipeline_named
from photon.fleet.polling import LIST_S, Gatherer, Heard
from photon.fleet.processes import Process
from photon.fleet.slots_shown import SlotsShown
from photon.fleet.watermarks import undecided_of
from photon.joiner.process import HasSlot
from photon.joiner.process import details_of as joiner_details
from photon.objects.costs import put_costs
from photon.objects.paths import placed
from photon.outputs.output_places import PublishedEnd
from photon.verifier.recovery import SlotRecovery
from photon.verifier.service import ServiceLimits, VerifiedPipeline, VerifierService, VerifierWorld
from photon.verifier.slot_work import SlotPlace, Step
from photon.verifier.source_finder import SourceFinder, SourceSide
from photon.verifier.status import details_of, verifier_metrics
from photon.verifier.watermark_keeper import WatermarkKeeper, within_ns

# Added to the patience: an event may wait this long for joiners and the registry before its record is written.
READ_BEFORE_S = 3600.0

log = get_logger(__name__)


def pipeline_of(settings: Settings, base: Path, datacentre: str | None) -> tuple[str, VerifiedPipeline]:
    """Returns the datacentre's name and its directories and slots. Raises UsageError."""
    name, pipeline = pipeline_named(settings, datacentre)
    return name, VerifiedPipeline(base / pipeline.state, base / pipeline.output, tuple(settings.slots(name)))


def limits_of(settings: Settings) -> ServiceLimits:
    """Returns the limits in the table ``[verifier]``."""
    configured = settings.verifier
    return ServiceLimits(
        check_share=configured.check_share,
        log_grace_s=configured.log_grace,
        owned_alarm_s=configured.owned_alarm,
        window_ids=configured.window,
    )


async def _gather(near: Mapping[str, HasSlot], gatherer: Gatherer, wanted: Sequence[Process]) -> list[Heard]:
    """Asks joiners for their details. Calls those in this process directly."""
    here = [Heard(each, details=joiner_details([near[at]])) for each in wanted if (at := each.address or "") in near]
    return here + await gatherer.gather(each for each in wanted if each.address not in near)


async def serve_verifier(room: Room) -> None:
    """Runs a pipeline's verifier. Raises VerifierBusy if another one runs here."""
    settings, pipeline = room.settings, room.pipeline
    _, own = pipeline_of(settings, room.base, room.datacentre)
    tls = room.tls()
    adapter = room.adapter("verifier")
    async with contextlib.AsyncExitStack() as closing:
        registry = await closing.enter_async_context(room.registry(tls))
        if not await admitted(room, registry):
            return
        disk, clock = room.disk, room.clock
        world = VerifierWorld(disk, clock, registry, registry.recovery, room.digester)

        def recovery(place: SlotPlace) -> Step:
            """Returns a step that gives up the ids that a redone incarnation of the slot still owns (rule 13)."""
            of_slot = SlotRecovery(disk, place.state, registry.recovery)
            return lambda: of_slot.run_once(clock.monotonic())

        slot = pipeline.spark_slot(room.datacentre) if pipeline.on_spark else None
        gatherer = Gatherer(tls, samples=False)
        closing.push_async_callback(gatherer.close)
        slots = SlotsShown(
            disk,
            own.slots,
            room.datacentre,
            lambda: registry.recovery.list_slots(timeout=LIST_S),
            partial(_gather, room.near.joiners, gatherer),
            slot or "",
        )
        watermarks = WatermarkKeeper(
            disk,
            clock,
            own.state,
            within_ns(settings, pipeline.join),
            undecided=lambda: undecided_of(own.state, slot),
            slots=slots.ask,
            cursor=PublishedEnd(disk, own.slots).look,
            timed=adapter.has_foreign_time,
        )
        service = VerifierService(
            own,
            world,
            limits_of(settings),
            lambda directory: sources_of(settings, room.base, room.datacentre, directory, adapter),
            [recovery],
            watermarks,
        )

        space = free_space({"state": own.state, "output": own.output})

        async def details() -> dict[str, Any]:
            return {**await details_of(disk, own), **watermarks.details()}

        async def ready() -> None:
            # Serves only while it holds the locks, so that a second verifier reports the conflict.
            metrics = ProcessMetrics([verifier_metrics(disk, own, clock), watermarks.read, space, put_costs], details)
            await closing.enter_async_context(room.answering("verifier", pipeline.at("verifier")[0], metrics, tls))
            log.info("verifier serves", datacentre=room.datacentre, join=pipeline.join, slots=str(own.slots))
            room.up()

        await service.run(room.stop, ready)


def sources_of(settings: Settings, base: Path, datacentre: str, directory: Path, adapter: Adapter) -> SourceFinder:
    """Returns a finder of a pipeline's raw logs. Raises VerifierDamaged."""
    pipeline = settings.datacentre[datacentre]
    configured = settings.join[pipeline.join]
    after = configured.unmatched_after
    patience_s = None if after is None else after + configured.primary_max_delay + READ_BEFORE_S

    foreign = SourceSide(
        placed(base, pipeline.foreign),
        configured.foreign_files,
        adapter.foreign_framing,
        adapter.foreign_has_header,
        settings.limits.record,
        adapter.foreign_links,
    )
    primary = SourceSide(
        placed(base, pipeline.primary),
        configured.primary_files,
        adapter.primary_framing,
        adapter.primary_has_header,
        settings.limits.record,
        adapter.primary_links,
    )
    patience_ns = None if patience_s is None else int(patience_s * 1e9)
    return SourceFinder(RealDisk(), directory, adapter, foreign, primary, patience_ns=patience_ns)
