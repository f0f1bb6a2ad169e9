"""Runs one registry replica as a process: serves Raft, registry and health on one port until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError
from photon.config.interval_clock import IntervalClock, KernelTime
from photon.config.kernel_time import kernel_time
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics
from photon.config.metrics.service import METRICS_SERVICE, MetricsService
from photon.config.serving import make_server
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.tls import CannotListen, bind
from photon.idregistry.client.channels import REGISTRY, REGISTRY_OPERATOR
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.replica.clocks import ClockWatch, PeerClocks
from photon.idregistry.replica.guests import Guest
from photon.idregistry.replica.metrics import details_of, reads
from photon.idregistry.replica.operator import Operator
from photon.idregistry.replica.server import RegistryReplica, ReplicaSettings, host_and_replica, resumed
from photon.idregistry.replica.service import SERVER_OPTIONS, OperatorServicer, RegistryServicer, datacentres_in

log = get_logger(__name__)

_STARTING_SECONDS, _WATCH_SECONDS = 0.1, 1.0  # interval of checks of the replica, until it is ready and afterwards
_GRACE_SECONDS = 2.0
# A replica with a conflicting set-up stays up this long, so that others like it can form a majority and learn of it.
_CONFLICT_SECONDS = 0.5
_LET_END_SECONDS = 0.01

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class ServeError(PhotonError):
    """The replica cannot serve. ``str()`` is one line: the fault, its place, and what to do."""


async def serve_registry(
    settings: ReplicaSettings,
    *,
    stop: asyncio.Event,
    ready: Callable[[], None] = lambda: None,
    answers: Callable[[RegistryServicer], None] = lambda servicer: None,
    guests: Sequence[Guest] = (),
    disk: Disk | None = None,
    clock: Clock | None = None,
    kernel: Callable[[], KernelTime | None] = kernel_time,
) -> None:
    """Serves until ``stop`` is set. Calls ``ready`` once when it serves, and before that ``answers``, with the
    object that answers callers in this process. ``guests``: other services replicated here. ``kernel``: returns the
    kernel's facts about its clock.

    Raises ServeError with one clear line if it cannot start, if the deployment was set up differently, or if the
    driver stopped on an error (fail-stop: a restart reads the disk again).
    """
    clock = clock or SystemClock()
    disk = disk or RealDisk()
    try:
        settings = resumed(settings, disk)
        clocks = _clocks(settings, clock, kernel)
        host, replica = host_and_replica(settings, disk, clock, clocks, guests)
    except ValueError as error:
        raise ServeError(f"registry {settings.name}: {error}") from None
    except (RaftStopped, OSError) as error:
        raise ServeError(f"registry {settings.name}: {settings.directory}: {error}") from error
    peer_clocks = PeerClocks(settings.name, clocks, settings.peers, settings.tls)
    server = make_server(SERVER_OPTIONS, tls=settings.tls, datacentre_of=datacentres_in(replica.config))
    health = HealthServicer()
    for name in ("", REGISTRY.name):
        await health.set(name, _NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    servicer = RegistryServicer(replica)
    REGISTRY.add(server, servicer)
    operator = Operator(settings, host, replica, clock)
    REGISTRY_OPERATOR.add(server, OperatorServicer(operator))
    host.add_to_server(server)
    of_guests = [source for guest in guests for source in guest.serve(host.group(guest.number), server)]
    sources = [*reads(replica), *of_guests, free_space({"state": settings.directory})]
    metrics = ProcessMetrics(sources, details_of(replica))
    METRICS_SERVICE.add(server, MetricsService(metrics, settings.peers[settings.name]))
    _bind(server, settings)
    await _start_host(host, settings)
    try:
        await server.start()
        replica.start()
        peer_clocks.start()
        log.info("registry.started", replica=settings.name, address=settings.peers[settings.name])
        answers(servicer)
        await _watch(replica, operator, host, health, stop, ready)
    finally:
        await health.enter_graceful_shutdown()
        await peer_clocks.stop()
        await replica.stop()
        await _let_end(server, host)
        await asyncio.get_running_loop().run_in_executor(None, host.stop)
        log.info("registry.stopped", replica=settings.name)


def _clocks(settings: ReplicaSettings, clock: Clock, kernel: Callable[[], KernelTime | None]) -> ClockWatch:
    """Creates the replica's ClockWatch. Raises ServeError if its clock must be synchronised but is not."""
    time = IntervalClock(clock, int(settings.uncertainty_s * 1e9), kernel)
    if settings.require_sync and not time.read().synchronised:
        raise ServeError(
            f"registry {settings.name}: clock.require_sync is set, but this machine's kernel does not call its clock "
            "synchronised: start a time daemon (chronyd, ntpd, systemd-timesyncd) and wait until it has set the clock"
        )
    others = [name for name in settings.peers if name != settings.name]
    return ClockWatch(time, others, require_sync=settings.require_sync)


async def _start_host(host: RaftHost, settings: ReplicaSettings) -> None:
    try:
        await asyncio.get_running_loop().run_in_executor(None, host.start)
    except Exception as error:
        raise ServeError(f"registry {settings.name}: {settings.directory}: {error}") from error


async def _let_end(server: grpc.aio.Server, host: RaftHost) -> None:
    """Stops the server after the requests in flight, whose proposals need the peers; then ends the peers' streams."""
    stopping = asyncio.create_task(server.stop(_GRACE_SECONDS))
    while host.waited_for and not stopping.done():  # noqa: ASYNC110 - another thread answers them
        await asyncio.sleep(_LET_END_SECONDS)
    host.hang_up()
    await stopping


async def _watch(
    replica: RegistryReplica,
    operator: Operator,
    host: RaftHost,
    health: HealthServicer,
    stop: asyncio.Event,
    ready: Callable[[], None],
) -> None:
    """Watches the replica until ``stop`` is set, and reports its health. Raises ServeError."""
    said_ready = False
    serving = False
    while not stop.is_set():
        if not (host.healthy and replica.healthy):
            raise ServeError(f"registry {replica.name} stopped itself: {host.failure or 'a group is not healthy'}")
        if replica.conflict is not None and replica.conflict.done():
            await asyncio.sleep(_CONFLICT_SECONDS)
            raise ServeError(f"registry {replica.name}: {replica.conflict.result()}")
        operator.tidy()
        if replica.ready != serving:
            serving = not serving
            for name in ("", REGISTRY.name):
                await health.set(name, _SERVING if serving else _NOT_SERVING)
        if serving and not said_ready:
            said_ready = True
            log.info("registry.ready", replica=replica.name)
            ready()
        await until(stop, _WATCH_SECONDS if said_ready else _STARTING_SECONDS)


def _bind(server: grpc.aio.Server, settings: ReplicaSettings) -> None:
    address = settings.bind or settings.peers[settings.name]
    try:
        bind(server, address, f"registry {settings.name}", settings.tls)
    except CannotListen:
        raise ServeError(f"registry {settings.name}: cannot listen on {address}: is the port in use?") from None
