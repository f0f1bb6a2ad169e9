"""``photon serve registry``, and the id rules that the registry checks in all other services."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of
from photon.assembly.room import Room
from photon.assembly.samples import Samples, in_registry, logs_of
from photon.config.errors import PhotonError, UsageError
from photon.config.own_process import in_own_process
from photon.config.roles import Role
from photon.config.settings import SIDES, Settings
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.idregistry.api import Digester
from photon.idregistry.client.deployment_key import deployment_key

if TYPE_CHECKING:
    from photon.idregistry.client.routing import RoutedRegistry

DESCRIBE_S = 2.0
RULE_S = 30.0  # time limit, with the start of a process and an adapter's imports

log = get_logger(__name__)


def rule_hash(adapter: Adapter, digester: Digester) -> bytes:
    """Returns a hash of the rule that derives digests, keys and times. The registry refuses processes with another
    rule."""
    return blake2b(digester.fingerprint() + adapter.rule(), digest_size=16).digest()


def rules_of(settings: Settings, base: Path) -> dict[str, bytes]:
    """Returns for each join the hash of the rule that derives its ids; the hash covers the key of the digests,
    too."""
    return {name: rule_of(settings, base, name) for name in sorted(settings.join)}


def rule_of(settings: Settings, base: Path, join: str) -> bytes:
    return rule_hash(adapter_of(settings, join, base), Digester(deployment_key(settings, base), join))


async def rules_for_replica(settings: Settings, base: Path) -> dict[str, bytes]:
    """Like `rules_of`, but runs user adapters in another process, because they must not delay a vote; not those that
    a datacentre in this process runs anyway. Omits joins whose adapter fails: the registry keeps their known
    rules."""
    rules = {}
    for join, its in sorted(settings.join.items()):
        if not its.runs_user_code or any("eventstore" in settings.inside(name) for name in settings.joining(join)):
            rules[join] = rule_of(settings, base, join)
            continue
        rule = "photon.assembly.registry:rule_of", settings, base, join
        try:
            rules[join] = await in_own_process(*rule, timeout_s=RULE_S)
        except (PhotonError, TimeoutError) as error:
            problem = str(error) or f"no answer within {RULE_S:g} s"
            log.warning(
                "an adapter gives no rule; if its join is new, correct the adapter and restart this replica",
                join=join,
                problem=problem,
            )
    return rules


async def admitted(room: Room, registry: RoutedRegistry, samples: Samples | None = None) -> bool:
    """Returns True if a service of the room's join may continue, after ``agree`` and ``Samples.begin``. Raises
    UsageError."""
    join = room.pipeline.join
    agreed = await agree(registry, join, rule_hash(room.adapter(), room.digester), room.stop)
    return agreed and await (samples or samples_of(room, registry)).begin(room.stop)


def samples_of(room: Room, registry: RoutedRegistry) -> Samples:
    join = room.pipeline.join
    logs = logs_of(room.settings, join, {side: room.logs(side) for side in SIDES})
    keep = in_registry(registry, join, room.datacentre)
    return Samples(keep, join, room.adapter(), room.digester, logs, room.clock)


async def agree(registry: RoutedRegistry, join: str, rule: bytes, stop: asyncio.Event) -> bool:
    """Waits until the registry knows the join, then compares its rule with ``rule``. Returns False if ``stop`` came
    first.

    Raises UsageError if they differ: a process with another key or rule would register known events again.
    """
    said = ""
    while not stop.is_set():
        described = await registry.describe(timeout=DESCRIBE_S)
        known = described and described.id_rules.get(join)
        if known == rule:
            return True
        if known is not None:
            raise UsageError(
                f"key_file or the adapter of join {join} differs from the one that the registry was filled with, "
                "and would join reread events twice: restore the old one"
            )
        problem = registry.problem
        if described is not None:
            problem = f"it does not know join {join} yet: restart its replicas with a file that has the join"
            await until(stop, DESCRIBE_S)
        if problem != said:
            log.warning("waiting for the registry", problem=problem)
        said = problem
    return False


async def serve_replica(room: Room) -> None:
    from photon.config.allocator import keep_lean
    from photon.idregistry.replica.process import serve_registry
    from photon.idregistry.replica.server import ReplicaSettings

    settings, name = room.settings, room.member
    replicas = settings.registry.replicas
    if name is None:
        raise UsageError("give the replica's name: photon serve registry NAME")
    if name not in replicas:
        known = ", ".join(sorted(replicas)) or "none"
        raise UsageError(f"registry {name}: not in [registry.replicas]; there are: {known}")
    own = ReplicaSettings(
        name=name,
        peers={each: replica.address for each, replica in replicas.items()},
        directory=room.base / replicas[name].directory,
        shards=settings.registry.shards,
        uncertainty_s=settings.clock.uncertainty,
        require_sync=settings.clock.require_sync,
        retention_s=settings.registry.retention,
        memory_limit=settings.registry.memory_limit,
        near=settings.replicas_near() if settings.registry.follow_callers else {},
        epoch=settings.registry.epoch,
        id_rules=await rules_for_replica(settings, room.base),
        tls=room.tls(Role.REGISTRY, name),
        bind=room.listen,
    )

    def answers(servicer: object) -> None:
        room.near.replicas[name] = servicer

    guests = []
    if settings.tables is not None and settings.tables.thrift:
        from photon.tables.timestamps.server import guest

        guests.append(guest(room.clock))
    if room.server is None:  # in a datacentre's process, buffers are always large
        keep_lean()
    await serve_registry(
        own, stop=room.stop, ready=room.up, answers=answers, guests=guests, disk=room.disk, clock=room.clock
    )
