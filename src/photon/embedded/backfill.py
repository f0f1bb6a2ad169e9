"""``photon spark backfill``: from a deployment file to a run of ``spark/backfill``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.clock import NS_PER_S, SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.config.tls import joiner_identity
from photon.embedded.services import pipeline_named, registry_client, rule_of, tls_of
from photon.spark.backfill.boundary import boundary_in
from photon.spark.backfill.manifest import JOB_VERSION, Job
from photon.spark.backfill.names import Places
from photon.spark.backfill.run import Outcome, Plan, alone, check_directory, run
from photon.spark.backfill.work import RegistryPlace
from photon.spark.session import session
from photon.spark.sources import Window, pipeline_sources

if TYPE_CHECKING:
    from photon.idregistry.client import RegistryClient

DESCRIBE_S = 10.0
SLOT_BYTES = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator said."""

    datacentre: str | None
    from_ns: int
    to_ns: int
    output: Path
    format: str
    unmatched: bool
    slack_s: float
    master: str | None = None
    spark: Mapping[str, str] | None = None
    """Settings of Spark's own."""


def backfill(settings: Settings, base: Path, wish: Wish, say: Callable[[str], None]) -> Outcome:
    """``base``: the deployment file's directory. May be killed at any moment and run again.

    Raises UsageError, PhotonError, OSError and what Spark raises.
    """
    check_directory(wish.output)
    name, pipeline = pipeline_named(settings, wish.datacentre)
    _check_range(wish)
    sources = pipeline_sources(
        settings,
        base,
        pipeline.join,
        datacentres=[name],
        window=Window(begin_ns=wish.from_ns, end_ns=wish.to_ns),
    )
    plan = Plan(
        places=Places(wish.output.absolute()),
        job=Job(
            version=JOB_VERSION,
            slot=f"backfill-{name}-{os.urandom(SLOT_BYTES).hex()}",
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
        registry=_registry_place(settings, base, name),
        joined_at=settings.output.joined_at,
    )
    with alone(plan.places):
        return asyncio.run(_run(settings, base, wish, plan, say))


async def _run(settings: Settings, base: Path, wish: Wish, plan: Plan, say: Callable[[str], None]) -> Outcome:
    registry = registry_client(settings, tls_of(settings, base, joiner_identity(plan.job.datacentre)))
    try:
        await _check_registry(registry, wish, plan.job.join, rule_of(settings, base, plan.job.join))
        spark = session("photon spark backfill", master=wish.master, settings=wish.spark)
        return await run(spark, plan, registry, RealDisk(), SystemClock(), say)
    finally:
        await registry.close()


async def _check_registry(registry: RegistryClient, wish: Wish, join: str, rule: bytes) -> None:
    """That it is this deployment's, and remembers the range. Raises UsageError, RegistrySilent."""
    described = await registry.describe(timeout=DESCRIBE_S)
    boundary = await boundary_in(registry, wish.from_ns, wish.to_ns)
    known = described and described.id_rules.get(join)
    if known != rule:
        raise UsageError(
            f"key_file or the adapter of join {join}: not those that the registry was filled under; with others all "
            "that is read again would be joined twice"
        )
    if boundary != wish.from_ns:
        said = "all of the range" if boundary is None else f"the part before {_text(boundary)}"
        raise UsageError(
            f"the registry has forgotten {said}: --from must be after its boundary; what is older can only be "
            "compared with existing output (photon spark verify)"
        )


def _check_range(wish: Wish) -> None:
    if wish.from_ns >= wish.to_ns:
        raise UsageError(f"--from {_text(wish.from_ns)} is not before --to {_text(wish.to_ns)}")
    newest = SystemClock().now_ns() - int(wish.slack_s * NS_PER_S)
    if wish.to_ns > newest:
        raise UsageError(
            f"--to {_text(wish.to_ns)}: the live pipeline is still at it; take {_text(newest)} or earlier, or say "
            "with --slack how far behind it may be"
        )


def _registry_place(settings: Settings, base: Path, datacentre: str) -> RegistryPlace:
    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    if settings.tls is None:
        return RegistryPlace(addresses)
    return RegistryPlace(addresses, str((base / settings.tls.directory).absolute()), joiner_identity(datacentre))


def _text(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
