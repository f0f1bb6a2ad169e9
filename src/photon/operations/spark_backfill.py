"""``photon spark backfill``: runs ``spark/backfill`` as the deployment file says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.join_adapters import adapter_of
from photon.assembly.registry import rule_of
from photon.assembly.samples import same_samples
from photon.config.clock import NS_PER_S, SystemClock
from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.fleet.access import pipeline_named, registry_of, tls_of
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath
from photon.spark.backfill.known import (
    SLOT_PREFIX,
    BackfillJob,
    BackfillPaths,
    begun,
    known_backfills,
    read_job,
    remember,
    source_of,
)
from photon.spark.backfill.registry_boundary import boundary_in
from photon.spark.backfill.run import (
    BATCH_BYTES,
    PACKED_BYTES,
    Backfill,
    BackfillOutcome,
    BackfillPlan,
    CopiesOutput,
    alone,
    check_output,
)
from photon.spark.backfill.tasks import BackfillPlace
from photon.spark.pipeline.planner import PART_BYTES, PlanLimits
from photon.spark.pipeline.tasks import RegistryPlace
from photon.spark.session import LEAN, session
from photon.spark.sources import OutputSource, TimeRange, pipeline_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from photon.idregistry.client.grpc_client import RegistryClient

DESCRIBE_S = 10.0
SLOT_BYTES = 6


@dataclass(frozen=True, slots=True)
class Wish:
    datacentre: str | None
    from_ns: int
    to_ns: int
    output: Path
    unmatched: bool
    slack_s: float
    # Compare events below the registry's boundary with all output; otherwise a range with any is refused.
    compare_below: bool = False
    part_bytes: int = PART_BYTES  # foreign records of a task, held in memory
    master: str | None = None
    spark: Mapping[str, str] | None = None  # Spark's own settings


def backfill(
    settings: Settings, base: Path, wish: Wish, say: Callable[[str], None], copy: CopiesOutput
) -> BackfillOutcome:
    """Runs a backfill; after a kill, run it again. ``base``: the deployment file's directory; ``copy``: copies output
    that is below a URL.

    Raises UsageError, PhotonError, OSError and Spark's errors.
    """
    check_output(wish.output)
    if isinstance(wish.output, ObjectPath) and wish.compare_below:
        raise UsageError(
            f"--output {wish.output}: --below-boundary compare does not work below a URL; name a directory that "
            "driver and executors have mounted"
        )
    name, pipeline = pipeline_named(settings, wish.datacentre)
    _check_range(wish, _decided_s(settings, base, pipeline.join))
    paths = BackfillPaths(wish.output.absolute())
    with alone(paths):
        return asyncio.run(_run(settings, base, wish, name, paths, say, copy))


async def _run(
    settings: Settings,
    base: Path,
    wish: Wish,
    name: str,
    paths: BackfillPaths,
    say: Callable[[str], None],
    copy: CopiesOutput,
) -> BackfillOutcome:
    join, disk = settings.datacentre[name].join, UrlDisk()
    tls = tls_of(settings, base, identity(Role.SPARK, name))
    async with registry_of(settings, tls) as registry:
        await _check_rule(registry, join, rule_of(settings, base, join))
        await same_samples(settings, base, join, name, registry)
        wanted = BackfillJob(
            slot=f"{SLOT_PREFIX}{name}-{os.urandom(SLOT_BYTES).hex()}",
            datacentre=name,
            join=join,
            from_ns=wish.from_ns,
            to_ns=wish.to_ns,
            unmatched=wish.unmatched,
            # A backfill that has begun may continue: it may own ids that only it can write.
            boundary_ns=await _boundary(registry, wish) if read_job(disk, paths.job) is None else 0,
        )
        job = begun(disk, paths, wanted)
        remember(disk, base, paths.output, job)
        plan = _plan(settings, base, wish, paths, job)

        def spark() -> SparkSession:
            return session("photon spark backfill", master=wish.master, settings={**LEAN, **(wish.spark or {})})

        return await Backfill(spark, plan, registry, disk, SystemClock(), say, copy)()


async def _check_rule(registry: RegistryClient, join: str, rule: bytes) -> None:
    """Checks that the registry belongs to this deployment. Raises UsageError."""
    described = await registry.describe(timeout=DESCRIBE_S)
    if (described and described.id_rules.get(join)) != rule:
        raise UsageError(
            f"key_file or the adapter of join {join} differs from the one that the registry was filled with, and "
            "would join reread events twice"
        )


async def _boundary(registry: RegistryClient, wish: Wish) -> int:
    """Returns the time before which no id can be registered; ``from_ns`` if the registry remembers the range.

    Raises UsageError, RegistrySilent.
    """
    boundary = await boundary_in(registry, wish.from_ns, wish.to_ns, of_all=wish.compare_below)
    if boundary != wish.from_ns and not wish.compare_below:
        said = "the whole range" if boundary is None else f"the part before {_text(boundary)}"
        raise UsageError(
            f"the registry has forgotten {said}, which is below its boundary: choose a later --from, or compare "
            "older events with all output: --below-boundary compare"
        )
    return wish.to_ns if boundary is None else boundary


def _plan(settings: Settings, base: Path, wish: Wish, paths: BackfillPaths, job: BackfillJob) -> BackfillPlan:
    window = TimeRange(begin_ns=job.from_ns, end_ns=job.to_ns)
    sources = pipeline_sources(settings, base, job.join, datacentres=[job.datacentre], window=window)
    everywhere = pipeline_sources(settings, base, job.join)
    place = BackfillPlace(
        join=sources.join,
        foreign=sources.foreign[0],
        registry=registry_place(settings, base, job.datacentre),
        journal=str(paths.slot(job) / "spark"),
        slot=job.slot,
        datacentre=job.datacentre,
        unmatched=job.unmatched,
        boundary_ns=job.boundary_ns,
        joined_at=settings.output.joined_at,
    )
    limits = PlanLimits(
        part_bytes=wish.part_bytes,
        packed_bytes=PACKED_BYTES,
        batch_bytes=BATCH_BYTES,
        max_record=int(settings.limits.record),
        last_line_after_s=float(settings.join[job.join].last_line_after),
    )
    others = tuple(_others(base, job, paths.output))
    return BackfillPlan(paths, job, place, sources.primary[0], limits, (*everywhere.outputs, *others))


def _others(base: Path, job: BackfillJob, own: Path) -> Iterator[OutputSource]:
    disk = UrlDisk()
    for output in known_backfills(disk, base, job.join, job.from_ns, job.to_ns):
        if output != own:
            yield source_of(disk, output, job.join)


def _decided_s(settings: Settings, base: Path, join: str) -> float:
    """Returns the delay, in seconds, after which an event's set of primary events is final; 0 if it needs none."""
    if not adapter_of(settings, join, base).matching.whole_sets:
        return 0.0
    return float(settings.join[join].unmatched_after or 0.0) + float(settings.join[join].primary_max_delay)


def _check_range(wish: Wish, decided_s: float) -> None:
    if wish.from_ns >= wish.to_ns:
        raise UsageError(f"--from {_text(wish.from_ns)} is not before --to {_text(wish.to_ns)}")
    newest = SystemClock().now_ns() - int(max(wish.slack_s, decided_s) * NS_PER_S)
    if wish.to_ns > newest and decided_s > wish.slack_s:
        raise UsageError(
            f"--to {_text(wish.to_ns)}: an event's set of primary events is final after unmatched_after "
            f"and primary_max_delay; choose {_text(newest)} or earlier"
        )
    if wish.to_ns > newest:
        raise UsageError(
            f"--to {_text(wish.to_ns)}: the live pipeline still works on it; choose {_text(newest)} or earlier, "
            "or set its maximum lag with --slack"
        )


def registry_place(settings: Settings, base: Path, datacentre: str) -> RegistryPlace:
    """Returns the addresses and identity with which executors reach the registry."""
    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    if settings.tls is None:
        return RegistryPlace(addresses)
    return RegistryPlace(addresses, str((base / settings.tls.directory).absolute()), identity(Role.SPARK, datacentre))


def _text(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
