"""``photon dispatcher skip``: finds the pipeline, checks that another datacentre reads its logs, and skips."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, Tls
from photon.dispatcher.partitions import Partition
from photon.dispatcher.process import Places, state_rule
from photon.dispatcher.skipping import Skips, commit_skips, locked_states, plan_skips
from photon.fleet.access import pipeline_named, tls_of
from photon.fleet.polling import dispatchers_serve
from photon.idregistry.api import Digester
from photon.idregistry.client.deployment_key import key_path, read_key
from photon.objects.paths import placed
from photon.operations.spark_join import held
from photon.spark.pipeline.journal import JoinOf, Journal, journal_of
from photon.spark.pipeline.skipping import positions_of, put_skips
from photon.spark.sources import pipeline_sources, reading_of

ASK_S = 5.0


class SkipRefused(PhotonError):
    """No other datacentre reads the skipped events."""


@dataclass(frozen=True, slots=True)
class SkipAnswer:
    """The plan and, with ``applied``, the result. ``readers``: other datacentres that read the logs."""

    datacentre: str
    skips: Skips
    readers: Mapping[str, bool]
    applied: bool
    refusal: str = ""  # why it would be refused; only for a plan


def skip(
    settings: Settings, base: Path, datacentre: str, to_ns: int | None, *, vouched: Sequence[str], apply: bool
) -> SkipAnswer:
    """Plans a skip and, with ``apply``, carries it out. ``to_ns``: ``None`` means now. ``vouched``: datacentres that
    read the logs according to the operator, even if their dispatchers do not answer.

    Raises UsageError if no other datacentre has the join; with ``apply``, SkipRefused if none of them reads it;
    StateError while the dispatcher runs; LogDirectoryError.
    """
    datacentre, pipeline = pipeline_named(settings, datacentre)
    others = [name for name, p in settings.datacentre.items() if p.join == pipeline.join and name != datacentre]
    if not others:
        raise UsageError(
            f"datacentre {datacentre} alone reads join {pipeline.join}: skipped events would never get a "
            "verdict; let it catch up instead, as it passes finished events quickly"
        )
    for name in vouched:
        if name not in others:
            raise UsageError(f"--reader {name}: not another datacentre of the join; choose from: {', '.join(others)}")
    readers = asyncio.run(_readers(settings, base, others, vouched, tls_of(settings, base, OPERATOR)))
    refusal = ""
    if not any(readers.values()):
        refusal = (
            f"no dispatcher of another datacentre answers ({', '.join(others)}), and events that none reads "
            f"never get a verdict; start one, or vouch for it with --reader {others[0]}"
        )
        if apply:
            raise SkipRefused(refusal)
    configured = settings.join[pipeline.join]
    places = Places(
        placed(base, pipeline.foreign),
        base / pipeline.output,
        base / pipeline.state,
        configured.foreign_files,
        settings.limits.record,
        partition=Partition(1, pipeline.dispatchers),
    )
    adapter = adapter_of(settings, pipeline.join, base)
    digester = Digester(read_key(key_path(settings, base)), pipeline.join)
    if pipeline.on_spark:
        of = JoinOf(pipeline.join, datacentre, state_rule(pipeline.join, adapter, digester))
        skips = _on_spark(settings, base, of, places, adapter, to_ns, apply=apply)
        return SkipAnswer(datacentre, skips, readers, apply, refusal)
    with locked_states(places, pipeline.join, adapter, digester, create=apply) as states:
        known = [position for state in states.values() for position in state.positions()]
        skips = plan_skips(places, adapter, known, to_ns)
        if apply:
            commit_skips(states, skips)
    return SkipAnswer(datacentre, skips, readers, apply, refusal)


def _on_spark(
    settings: Settings, base: Path, of: JoinOf, places: Places, adapter: Adapter, to_ns: int | None, *, apply: bool
) -> Skips:
    """Skips in the journal of a join on Spark. Raises UsageError while the join runs."""
    slot = settings.datacentre[of.datacentre].spark_slot(of.datacentre)
    journal = Journal(RealDisk(), journal_of(places.state, slot))
    if not (apply or journal.directory.exists()):
        return plan_skips(places, adapter, [], to_ns)
    with held(journal.directory.parent):
        journal.prepare(of)
        skips = plan_skips(places, adapter, positions_of(journal), to_ns)
        if apply:
            [foreign] = pipeline_sources(settings, base, of.join, datacentres=[of.datacentre]).foreign
            reading = reading_of(foreign, adapter, foreign=True)
            put_skips(journal, places.foreign, reading, skips.moved, time.time_ns)
    return skips


async def _readers(
    settings: Settings, base: Path, others: Sequence[str], vouched: Sequence[str], tls: Tls | None
) -> dict[str, bool]:
    async def reads(name: str) -> bool:
        return name in vouched or await dispatchers_serve(settings, name, tls, ASK_S)

    return dict(zip(others, await asyncio.gather(*map(reads, others)), strict=True))
