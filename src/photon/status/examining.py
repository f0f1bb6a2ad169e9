"""Facts for ``photon doctor`` from the processes of a deployment: what they say of themselves and the registry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from photon.config.clock import NS_PER_S
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.config.tls import Tls
from photon.embedded.doctor.facts import Boundary, Process, Registry
from photon.fleet import processes as fleet
from photon.fleet.asking import Asker, Heard
from photon.fleet.numbers import Numbers
from photon.idregistry.operations.client import OperatorClient
from photon.idregistry.operations.findings import Expected, findings
from photon.idregistry.operations.inspection import Inspection
from photon.idregistry.shard_snapshot import NO_BOUNDARY


def processes(settings: Settings, tls: Tls | None, base: Path | None = None) -> list[Process]:
    """Those that the deployment file names and those that are found beside them, each asked again once it is known:
    then nothing is in the way of its clock. ``base``: directory of the file."""
    return asyncio.run(_asked(settings, tls, base))


async def _asked(settings: Settings, tls: Tls | None, base: Path | None) -> list[Process]:
    asker = Asker(settings, sorted(settings.datacentre), tls, base)
    try:
        await asker.look(time.monotonic())
        heard = await asker.look(time.monotonic())
        return list(await asyncio.gather(*(_one(asker, each.process) for each in heard)))
    finally:
        await asker.close()


async def _one(asker: Asker, process: fleet.Process) -> Process:
    begun = time.time()
    heard = await asker.ask(process)
    return process_of(heard, begun, time.time())


def process_of(heard: Heard, begun_s: float, ended_s: float) -> Process:
    """``begun_s``, ``ended_s``: Unix times here, around the question."""
    who = heard.process
    if not heard.up:
        return Process(who.datacentre, who.title, who.address or "", heard.problem)
    now = Numbers([heard])
    said = now.of(who, "photon_clock_seconds")
    return Process(
        who.datacentre,
        who.title,
        who.address or "",
        version=next((sample.labels.get("version", "") for _, sample in now.each("photon_build_info")), ""),
        ahead_s=None if said is None else said - (begun_s + ended_s) / 2,
        error_s=max(ended_s - begun_s, 0.0) / 2,
        open_files=now.sum("process_open_fds"),
        max_files=now.sum("process_max_fds"),
        ambiguous_keys=now.sum("photon_eventstore_ambiguous_keys_total"),
    )


def registry(settings: Settings, tls: Tls | None, now_ns: int) -> Registry:
    """As ``photon registry doctor`` has it, and how old the shards' boundaries are."""
    replicas = {name: replica.address for name, replica in settings.registry.replicas.items()}
    if not replicas:
        return Registry()
    with OperatorClient(replicas, tls) as client:
        found = client.measure_all()
    expected = Expected(replicas, settings.registry.epoch, settings.clock.uncertainty)
    try:
        said = [(each.level, each.where, each.what, each.do) for each in findings(found, expected, ())]
    except PhotonError as error:
        said = [("error", "registry", str(error), "photon registry doctor")]
    up = sum(each.reply is not None for each in found.values())
    retention = settings.registry.retention
    return Registry(said, len(replicas), up, _boundaries(list(found.values()), now_ns), retention)


def _boundaries(found: Sequence[Inspection], now_ns: int) -> list[Boundary]:
    """The furthest that any replica has applied, of each shard."""
    furthest: dict[int, int] = {}
    for each in found:
        for group in each.reply.groups if each.reply is not None else ():
            if group.group:
                furthest[group.group] = max(furthest.get(group.group, NO_BOUNDARY), group.boundary_ns)
    ages = {shard: None if at == NO_BOUNDARY else (now_ns - at) / NS_PER_S for shard, at in furthest.items()}
    return [Boundary(shard, ages[shard]) for shard in sorted(ages)]
