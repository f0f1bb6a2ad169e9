"""``photon spark backfill``: from a deployment file to a run of ``spark/backfill``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

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
from photon.spark.backfill.batch_names import SLOT_PREFIX, BackfillPaths
from photon.spark.backfill.manifest import BackfillJob, begun, known_backfills, remember
from photon.spark.backfill.parts import JSONL, PARQUET
from photon.spark.backfill.registry_boundary import boundary_in
from photon.spark.backfill.run import BackfillOutcome, BackfillPlan, alone, check_output, run
from photon.spark.backfill.work import BATCH_ROWS, RegistryPlace
from photon.spark.session import session
from photon.spark.sources import TimeRange, pipeline_sources

if TYPE_CHECKING:
    from photon.idregistry.client.grpc_client import RegistryClient

DESCRIBE_S = 10.0
SLOT_BYTES = 6


@dataclass(frozen=True, slots=True)
class Wish:
    datacentre: str | None
    from_ns: int
    to_ns: int
    output: Path
    format: str
    unmatched: bool
    slack_s: float
    # Compare events below the registry's boundary with all output; otherwise a range that has any is refused.
    compare_below: bool = False
    batch_rows: int = BATCH_ROWS
    master: str | None = None
    spark: Mapping[str, str] | None = None  # Spark's own settings


def backfill(settings: Settings, base: Path, wish: Wish, say: Callable[[str], None]) -> BackfillOutcome:
    """``base``: the deployment file's directory. May be killed at any moment and run again.

    Raises UsageError, PhotonError, OSError and Spark's errors.
    """
    check_output(wish.output)
    if isinstance(wish.output, ObjectPath) and (wish.format != JSONL or wish.compare_below):
        raise UsageError(
            f"--output {wish.output}: there are no --format {PARQUET} and no --below-boundary compare below a URL; "
            "name a directory that driver and executors have mounted"
        )
    name, pipeline = pipeline_named(settings, wish.datacentre)
    _check_range(wish, _decided_s(settings, base, pipeline.join))
    window = TimeRange(begin_ns=wish.from_ns, end_ns=wish.to_ns)
    sources = pipeline_sources(settings, base, pipeline.join, datacentres=[name], window=window)
    everywhere = pipeline_sources(settings, base, pipeline.join)
    plan = BackfillPlan(
        places=BackfillPaths(wish.output.absolute()),
        job=BackfillJob(
            slot=f"{SLOT_PREFIX}{name}-{os.urandom(SLOT_BYTES).hex()}",
            datacentre=name,
            join=pipeline.join,
            from_ns=wish.from_ns,
            to_ns=wish.to_ns,
            format=wish.format,
            unmatched=wish.unmatched,
        ),
        join=sources.join,
        foreign=sources.foreign[0],
        primary=sources.primary[0],
        registry=registry_place(settings, base, name),
        outputs=tuple(everywhere.outputs),
        backfills=tuple(_others(base, pipeline.join, wish)),
        joined_at=settings.output.joined_at,
        batch_rows=wish.batch_rows,
    )
    with alone(plan.places):
        disk = UrlDisk()
        remember(disk, base, plan.places.output, begun(disk, plan.places.job, plan.job))
        return asyncio.run(_run(settings, base, wish, plan, say))


async def _run(
    settings: Settings, base: Path, wish: Wish, plan: BackfillPlan, say: Callable[[str], None]
) -> BackfillOutcome:
    tls = tls_of(settings, base, identity(Role.SPARK, plan.job.datacentre))
    async with registry_of(settings, tls) as registry:
        boundary = await _check_registry(registry, wish, plan.job.join, rule_of(settings, base, plan.job.join))
        await same_samples(settings, base, plan.job.join, plan.job.datacentre, registry)
        if boundary > wish.from_ns:
            plan = _divided(plan, wish, boundary)
        spark = session("photon spark backfill", master=wish.master, settings=wish.spark)
        return await run(spark, plan, registry, UrlDisk(), SystemClock(), say)


async def _check_registry(registry: RegistryClient, wish: Wish, join: str, rule: bytes) -> int:
    """Checks that the registry belongs to this deployment, and remembers the range. Returns the time before which
    nothing can be registered.

    Raises UsageError, RegistrySilent.
    """
    described = await registry.describe(timeout=DESCRIBE_S)
    boundary = await boundary_in(registry, wish.from_ns, wish.to_ns, of_all=wish.compare_below)
    known = described and described.id_rules.get(join)
    if known != rule:
        raise UsageError(
            f"key_file or the adapter of join {join}: not those that the registry was filled under; with others all "
            "that is read again would be joined twice"
        )
    if boundary != wish.from_ns and not wish.compare_below:
        said = "all of the range" if boundary is None else f"the part before {_text(boundary)}"
        raise UsageError(
            f"the registry has forgotten {said}, which is below its boundary: take a later --from, or have older "
            "events compared with all output: --below-boundary compare"
        )
    return wish.to_ns if boundary is None else boundary


def _divided(plan: BackfillPlan, wish: Wish, boundary: int) -> BackfillPlan:
    assert plan.foreign is not None, "a plan begins with the whole range"
    below = TimeRange(begin_ns=wish.from_ns, end_ns=boundary)
    above = TimeRange(begin_ns=boundary, end_ns=wish.to_ns)
    return replace(
        plan,
        forgotten=msgspec.structs.replace(plan.foreign, window=below),
        foreign=msgspec.structs.replace(plan.foreign, window=above) if boundary < wish.to_ns else None,
    )


def _others(base: Path, join: str, wish: Wish) -> Iterator[Path]:
    for known in known_backfills(UrlDisk(), base, join, wish.from_ns, wish.to_ns):
        if known.path.absolute() != wish.output.absolute():
            yield known.path


def _decided_s(settings: Settings, base: Path, join: str) -> float:
    """How long after its event time an event's set of primary events is final at the latest; 0 if it needs none."""
    if not adapter_of(settings, join, base).matching.whole_sets:
        return 0.0
    return float(settings.join[join].unmatched_after or 0.0) + float(settings.join[join].primary_max_delay)


def _check_range(wish: Wish, decided_s: float) -> None:
    if wish.from_ns >= wish.to_ns:
        raise UsageError(f"--from {_text(wish.from_ns)} is not before --to {_text(wish.to_ns)}")
    newest = SystemClock().now_ns() - int(max(wish.slack_s, decided_s) * NS_PER_S)
    if wish.to_ns > newest and decided_s > wish.slack_s:
        raise UsageError(
            f"--to {_text(wish.to_ns)}: which primary events an event is joined with is final after unmatched_after "
            f"and primary_max_delay; take {_text(newest)} or earlier"
        )
    if wish.to_ns > newest:
        raise UsageError(
            f"--to {_text(wish.to_ns)}: the live pipeline is still at it; take {_text(newest)} or earlier, or say "
            "with --slack how far behind it may be"
        )


def registry_place(settings: Settings, base: Path, datacentre: str) -> RegistryPlace:
    """How the executors reach the registry."""
    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    if settings.tls is None:
        return RegistryPlace(addresses)
    return RegistryPlace(addresses, str((base / settings.tls.directory).absolute()), identity(Role.SPARK, datacentre))


def _text(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
