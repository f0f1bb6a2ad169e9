"""Lists the services that run a deployment in containers of any kind, from its deployment file alone.

A service is one Photon process, named after the host of its address. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from photon.config.settings import NAME, Settings
from photon.fleet.processes import Process, of_datacentre, processes
from photon.idregistry.client.whereabouts import AUTO
from photon.supervision.ports import host_and_port

# Mount point of the deployment file's directory. It is a directory because a mounted file would not show changes.
ETC = "/etc/photon"
JOINER_PORT = 7040  # port of joiners found by discovery; each container has its own address
# Memory of a kind's container in MB; other kinds have 384.
MEMORY = {"registry": 768, "datacentre": 1536, "joiner": 512, "eventstore": 512, "dispatcher": 512, "spark": 3072}
_ALL = ("key", "logs", "state", "output")
# Kind of process -> the volumes that it needs in addition to its certificate.
MOUNTS = {
    "registry": ("key", "registry"), "datacentre": _ALL, "cache": (), "copies": ("state",), "status": (),
    "eventstore": ("key", "logs", "state"), "joiner": ("key", "state", "output"), "verifier": _ALL,
    "dispatcher": _ALL, "spark": _ALL, "operator": _ALL, "sink": ("state", "output"), "compute": ("state", "output"),
}  # fmt: skip
_ORDER = (
    "cache", "eventstore", "copies", "joiner", "verifier", "dispatcher", "datacentre", "spark", "compute", "sink",
    "status",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    process: Process
    port: int  # listening port

    @property
    def kind(self) -> str:
        return self.process.kind

    @property
    def found(self) -> bool:
        """True for joiners that are not in the file, but found by discovery."""
        return self.process.name == AUTO

    def serve(self, config: str, *more: str) -> list[str]:
        return ["serve", self.kind, *(self.process.arguments or ()), *more, "--config", config]


def listening(settings: Settings) -> list[Process]:
    """Returns all processes that are services.

    The second process of ``compute-spend:7500`` gets the address ``compute-spend-2:7500``.
    """
    more = {}
    for name, compute in settings.compute.items():
        if compute.address is not None:
            host, port = host_and_port(compute.address)
            for number, who in enumerate(compute.names(name)[1:], 2):
                more[who] = f"{host}-{number}:{port}"
    found = [replace(each, address=more.get(each.name, each.address)) if each.kind == "compute" else each
             for each in processes(settings)]  # fmt: skip
    return [each for each in found if each.address and each.arguments is not None]


def services(settings: Settings) -> Iterator[Service]:
    """Yields the services, without the proxy between regions: replicas, then one datacentre after another."""
    found = listening(settings)
    for each in found:
        if each.kind == "registry":
            yield _service(each)
    for datacentre, pipeline in settings.datacentre.items():
        own = [each for each in found if each.datacentre == datacentre]
        if not pipeline.joiners and not pipeline.on_spark:
            joiner = of_datacentre("joiner", datacentre, AUTO, f"joiner-{datacentre}:{JOINER_PORT}")
            own.append(replace(joiner, arguments=(AUTO, "--datacentre", datacentre)))
        own += [replace(each, datacentre=datacentre, region=settings.region(datacentre))
                for each in found if each.kind == "compute"]  # fmt: skip
        for kind in _ORDER:
            yield from (_service(each) for each in own if each.kind == kind)


def _service(each: Process) -> Service:
    host, port = host_and_port(each.address or "")
    return Service(host.replace(".", "-"), each, port)


def problems(settings: Settings, made: Iterable[str]) -> Iterator[str]:
    """Yields one line for each setting that does not work in containers, with what to write instead. ``made``: host
    names of automatically created services."""
    if not settings.registry.replicas:
        yield "registry.replicas: is empty; list 1, 3 or 5 replicas"
    for name in settings.observe:
        yield f"observe.{name}: not supported in containers; remove it, and run it with photon serve observe"
    for name, compute in settings.compute.items():
        if len(settings.datacentre) != 1:
            yield (
                f"compute.{name}: reads outputs on its own machine, but there are several datacentres; remove "
                "it, and run it with photon serve compute"
            )
        if not compute.state.startswith("/state/"):
            yield f"compute.{name}.state = {compute.state!r}: must be in '/state', where a volume is mounted"
        if "/" in compute.file:
            yield f"compute.{name}.file = {compute.file!r}: must be next to the deployment file, which is mounted"
        if compute.address is None:
            yield f'compute.{name}.address: is missing; write address = "compute-{name}:7500"'
    for name, sink in settings.sink.items():
        if not re.match(r"\w+:", sink.into):
            yield f"sink.{name}.into = {sink.into!r}: must be a URL, a topic or PostgreSQL: containers keep no files"
        if sink.address is None:
            yield f'sink.{name}.address: is missing; write address = "sink-{name}:7600"'
    for name, replica in settings.registry.replicas.items():
        yield from directory(f"registry.replicas.{name}.directory", replica.directory, "/registry")
    for name, pipeline in settings.datacentre.items():
        at = f"datacentre.{name}"
        yield from directory(f"{at}.state", pipeline.state, "/state")
        yield from directory(f"{at}.output", pipeline.output, "/output")
        if pipeline.joiners > 1 and not pipeline.on_spark:
            yield f"{at}.joiners: several joiners must be found by discovery: write 0, and run any number of them"
        if pipeline.dispatchers > 1:
            yield f"{at}.dispatchers: several dispatchers must share a machine, but containers do not; remove it"
        if settings.relayed(name):
            yield f"{at}: relays are not supported in containers; remove chained joins and topics"
    hosts = {name: f"{name}, which is created automatically" for name in made}
    for each in listening(settings):
        host, _ = host_and_port(each.address or "")
        if not re.fullmatch(NAME, host.replace(".", "-")):
            yield f"{each.title}: {each.address}: the host must be a service's name: a-z, 0-9, - and _"
        if hosts.setdefault(host, each.title) != each.title:
            yield f"{each.title}: {each.address}: is also the service of {hosts[host]}; give each its own host"


def directory(key: str, value: str | None, wanted: str) -> Iterator[str]:
    if value != wanted:
        yield f"{key} = {value!r}: must be {wanted!r}, where its volume is mounted"
