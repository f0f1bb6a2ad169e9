"""Lists every process that a deployment's settings define, and the properties of its kind. Pure.

This is the only list of kinds: code that starts, asks, checks or breaks a deployment iterates over ``processes``. To
add a kind of process, add an entry to ``KINDS``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import cast

from photon.config.roles import Role, identity
from photon.config.settings import Part, Settings
from photon.config.tls import OPERATOR, WAN


@dataclass(frozen=True, slots=True)
class Process:
    datacentre: str  # the datacentre that it is lost with; empty if none
    kind: str
    name: str  # name among the processes of its kind
    address: str | None  # host:port; `None` if it does not listen
    identity: str = ""  # name in its certificate
    region: str = ""
    label: str = ""  # name in ``photon up`` and ``photon status processes``
    # Its arguments for ``photon serve KIND``. `None` if ``photon up`` does not start it.
    arguments: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def labels(self) -> dict[str, str]:
        return {"datacentre": self.datacentre, "service": self.kind, "process": self.name}


Listed = Callable[[Settings], Iterable[Process]]


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties that all processes of a kind share."""

    stage: int  # start order: a stage needs the stages before it
    health: str  # name of its service in gRPC's health protocol; empty if it has no gRPC
    listed: Listed
    # MODULE:COROUTINE, called with a Room (``photon.assembly.room``); empty if not for ``photon serve``.
    serve: str = ""
    takes: str = ""  # names of its parameters in ``photon serve KIND``


# The kind that runs all parts of a datacentre that are not ``apart``. Each part is still asked separately.
DATACENTRE = "datacentre"

Member = tuple[str, str | None, tuple[str, ...]]  # name, address, name as argument of ``photon serve`` (or none)


def _registry(settings: Settings) -> Iterator[Process]:
    for name, each in settings.registry.replicas.items():
        region = settings.region_of_replica(name)
        yield Process(
            each.datacentre, "registry", name, each.address, identity(Role.REGISTRY, name), region,
            f"registry {name}", None if each.together else (name,),
        )  # fmt: skip


def _wan(settings: Settings) -> Iterator[Process]:
    if settings.wan is not None:
        yield Process("", "wan", "gateway", settings.wan.control, WAN, "", "wan", ())


def _compute(settings: Settings) -> Iterator[Process]:
    for name, each in settings.compute.items():
        for who in each.names(name):
            address = each.address if who == name else None
            yield Process("", "compute", who, address, identity(Role.COMPUTE, name), "", f"compute {who}", (who,))


def _observers(settings: Settings) -> Iterator[Process]:
    for name, each in settings.observe.items():
        for number, address in enumerate(each.addresses, 1):
            who = f"{name}-{number}"
            yield Process(
                "", "observe", who, address, identity(Role.OBSERVE, name), "", f"observe {who}", (who,)
            )  # fmt: skip


def _sinks(settings: Settings) -> Iterator[Process]:
    for name, each in settings.sink.items():
        datacentre = each.datacentre or next(iter(settings.datacentre), "")
        region = settings.region(datacentre) if datacentre in settings.datacentre else ""
        yield Process(
            datacentre, "sink", name, each.address, identity(Role.SINK, name), region, f"sink {name}", (name,)
        )  # fmt: skip


def _part(part: Part, members: Callable[[Settings, str], Iterable[Member]]) -> Listed:
    def listed(settings: Settings) -> Iterator[Process]:
        for datacentre in settings.datacentre:
            apart = part not in settings.inside(datacentre)
            for name, address, more in members(settings, datacentre):
                arguments = (*more, "--datacentre", datacentre) if apart else None
                found = of_datacentre(part, datacentre, name, address)
                yield replace(found, region=settings.region(datacentre), arguments=arguments)

    return listed


def of_datacentre(kind: str, datacentre: str, name: str, address: str | None) -> Process:
    label = f"{kind} {datacentre} {name}" if kind == "dispatcher" and name != datacentre else f"{kind} {name}"
    role = Role.SPARK if kind == "spark" else Role.DATACENTRE
    return Process(datacentre, kind, name, address, identity(role, datacentre), label=label)


def _joiners(settings: Settings, datacentre: str) -> Iterable[Member]:
    on_spark = settings.datacentre[datacentre].on_spark
    return [] if on_spark else [(name, at, (name,)) for name, at in settings.joiners(datacentre).items()]


def _spark(settings: Settings, datacentre: str) -> Iterable[Member]:
    pipeline = settings.datacentre[datacentre]
    return [(datacentre, pipeline.at("spark")[0], ())] if pipeline.on_spark else []


def _dispatchers(settings: Settings, datacentre: str) -> Iterable[Member]:
    pipeline = settings.datacentre[datacentre]
    if pipeline.on_spark:
        return []
    several = pipeline.dispatchers > 1
    names = zip(pipeline.dispatcher_names(), pipeline.at("dispatcher"), strict=True)
    return [(name or datacentre, at, (name,) if several else ()) for name, at in names]


def _caches(settings: Settings, datacentre: str) -> Iterable[Member]:
    return [(name, at, (name,)) for name, at in settings.caches(datacentre).items()]


def _single(part: Part, wanted: Callable[[Settings, str], object] = lambda settings, datacentre: True) -> Listed:
    def members(settings: Settings, datacentre: str) -> Iterable[Member]:
        at = settings.datacentre[datacentre]
        address = at.page if part == "status" else at.at(part)[0]
        return [(datacentre, address, ())] if wanted(settings, datacentre) else []

    return _part(part, members)


def _datacentres(settings: Settings) -> Iterator[Process]:
    """Yields the processes of datacentres, including the replicas that are set to run in them."""
    hosts = {each.datacentre for each in settings.registry.replicas.values() if each.together}
    for name, pipeline in settings.datacentre.items():
        if settings.inside(name) or name in hosts:
            found = of_datacentre(DATACENTRE, name, name, pipeline.address)
            yield replace(found, region=settings.region(name), arguments=(name,))


# Kinds by their name in ``photon serve``, in display order.
KINDS: Mapping[str, Kind] = {
    "dispatcher": Kind(
        5, "photon.v1.Dispatcher", _part("dispatcher", _dispatchers),
        "photon.assembly.dispatcher:serve_dispatcher", "datacentre name listen address read_from"),
    "joiner": Kind(
        4, "photon.v1.Joiner", _part("joiner", _joiners),
        "photon.assembly.joiner:serve_joiner", "datacentre name listen address accept_damaged_log"),
    "eventstore": Kind(
        3, "photon.v1.EventStore", _single("eventstore"), "photon.assembly.eventstore:serve_store",
        "datacentre join_name primary state listen address once may_be_empty stages"),
    "cache": Kind(
        2, "photon.v1.Cache", _part("cache", _caches), "photon.assembly.eventstore:serve_cache",
        "datacentre name listen"),
    "copies": Kind(
        3, "photon.v1.Copies", _single("copies", lambda settings, name: settings.output.copies > 1),
        "photon.assembly.copies:serve_copies", "datacentre listen"),
    "verifier": Kind(
        4, "photon.v1.Verifier", _single("verifier"), "photon.assembly.verifier:serve_verifier", "datacentre listen"),
    "spark": Kind(
        5, "photon.v1.SparkJoin", _part("spark", _spark), "photon.operations.spark_join:serve_join",
        "datacentre listen"),
    "relay": Kind(
        5, "photon.v1.Relay", _single("relay", Settings.relayed), "photon.assembly.relay:serve_relay",
        "datacentre accept_lost_offsets"),
    DATACENTRE: Kind(
        5, "photon.v1.Datacentre", _datacentres, "photon.assembly.datacentre:serve_datacentre",
        "name listen read_from accept_damaged_log accept_lost_offsets"),
    "registry": Kind(
        1, "photon.v1.Registry", _registry, "photon.assembly.registry:serve_replica", "name listen"),
    "wan": Kind(0, "photon.v1.Wan", _wan),
    "compute": Kind(6, "photon.v1.Compute", _compute, "photon.assembly.compute:serve_compute", "name listen"),
    "observe": Kind(5, "photon.v1.Observe", _observers, "photon.assembly.observe:serve_observe", "name"),
    "sink": Kind(6, "photon.v1.Sink", _sinks, "photon.sinks.process:serve_sink", "name listen"),
    "status": Kind(
        6, "", _single("status", lambda settings, name: settings.datacentre[name].page),
        "photon.status.process:serve_status", "datacentre listen"),
}  # fmt: skip


def coroutine_of(kind: str) -> Callable[..., Awaitable[object]]:
    """Imports the coroutine that serves this kind."""
    module, _, coroutine = KINDS[kind].serve.partition(":")
    return cast("Callable[..., Awaitable[object]]", getattr(import_module(module), coroutine))


READERS = ("dispatcher", "spark")  # kinds that read foreign logs; their reports have the same form
# Kinds outside datacentres (though a replica may be lost with a datacentre).
COMMON = ("registry", "wan", "compute", "observe")


def processes(settings: Settings) -> list[Process]:
    """Returns all processes in the file. Joiners that are not in it may also run (see ``look``)."""
    return [each for kind in KINDS.values() for each in kind.listed(settings)]


def stages(settings: Settings) -> list[list[Process]]:
    """Returns the processes that ``photon up`` starts; each stage needs the stages before it. A datacentre's process
    that runs a replica starts with the replicas, because separate parts need it."""
    hosts = {each.datacentre for each in settings.registry.replicas.values() if each.together}
    found: dict[int, list[Process]] = {}
    for each in processes(settings):
        if each.arguments is not None:
            kind = "registry" if each.kind == DATACENTRE and each.name in hosts else each.kind
            found.setdefault(KINDS[kind].stage, []).append(each)
    return [found[at] for at in sorted(found)]


def asked_of(settings: Settings, datacentre: str) -> list[Process]:
    """Returns the processes to ask about a datacentre: its own, the registry's replicas, the proxy between regions,
    computations and observers."""
    return [
        each
        for each in processes(settings)
        if each.address is not None
        and each.kind != DATACENTRE
        and KINDS[each.kind].health
        and (each.datacentre == datacentre or each.kind in COMMON)
    ]


def listening(settings: Settings) -> dict[str, Process]:
    """Returns host:port -> the process that listens at it."""
    found = sorted(processes(settings), key=lambda each: each.kind == DATACENTRE)  # its process, not its parts
    return {each.address: each for each in found if each.address}


def identities(settings: Settings) -> list[str]:
    """Returns every identity that needs a certificate, including Spark jobs that register ids for a datacentre."""
    found = [each.identity for each in processes(settings)]
    found += [identity(Role.SPARK, name) for name in settings.datacentre]
    return [*dict.fromkeys(found), OPERATOR]


def survives(settings: Settings) -> list[str]:
    """Returns sentences that say whether the registry survives losses: of replicas, and of each datacentre and
    region."""
    replicas = settings.registry.replicas
    if not replicas:
        return []
    majority = len(replicas) // 2 + 1
    spare = len(replicas) - majority
    lines = [f"the registry keeps serving while any {spare} of its {len(replicas)} replicas are lost"]
    held = {name: replica.datacentre for name, replica in replicas.items()}
    regions = {name: settings.region_of_replica(name) for name in replicas}
    kinds = [("datacentre", held)]
    if regions != held:
        kinds.append(("region", regions))
    for kind, places in kinds:
        for place, count in sorted(Counter(place for place in places.values() if place).items()):
            verdict = "survives" if count <= spare else "does not survive"
            lines.append(f"the registry {verdict} the loss of {kind} {place} ({count} of {len(replicas)} replicas)")
    return lines
