"""Generates the values of the chart ``deploy/helm/photon`` from a deployment file: the processes, and their permitted
calls. Pure.

Each service is a Kubernetes Service that leads to one pod. Its name is the first word of the host in its address; the
table of rights decides the open ports. The chart defines how pods run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, get_args

from photon.config.errors import UsageError
from photon.config.rights import RIGHTS
from photon.config.roles import Role
from photon.config.settings import Part, Settings
from photon.fleet.processes import DATACENTRE, KINDS, processes
from photon.supervision.ports import host_and_port
from photon.supervision.routes import called_across
from photon.supervision.services import ETC, MEMORY, MOUNTS, Service, directory, listening, problems, services

# Kinds of processes that have a datacentre's certificate.
PARTS = (DATACENTRE, *(part for part in get_args(Part) if part != "spark"))
KEY_FILE, CERTIFICATES = "/key/key", "/certs"
_LABEL = r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?"
_EVERYWHERE = ("photon.v1.Metrics", "photon.v1.Explain")
LOGS, HOST_LOGS = "/logs/", "/var/log/"  # log directories: in a volume claim, and on the node
# Kind of process -> its gRPC services, other than the one that reports its health.
_MORE = {"registry": ("photon.v1.RegistryOperator", "photon.v1.RaftPeer", "photon.v1.Timestamps")}


class NotForContainers(UsageError):
    """Raised for a deployment that cannot run in containers. One line: the key, and a valid setting."""


def values(settings: Settings, file: str, text: str, read: Callable[[str], str]) -> str:
    """Returns the values as JSON text. ``file``: path of the deployment file; ``text``: its content; ``read``: reads
    a file next to it. Raises NotForContainers, and the errors of ``read``."""
    problem = next(_problems(settings), None)
    if problem is not None:
        raise NotForContainers(f"{file}: {problem}")
    config = PurePosixPath(file).name
    made = [_made(settings, each, f"{ETC}/{config}") for each in services(settings)]
    deployment: dict[str, Any] = {
        "made": f"from {file} by photon up --helm: change that file, then generate this one again",
        "datacentres": [
            {"name": each, "region": settings.region(each), "mounts": _mounts(settings, "operator", each)}
            for each in settings.datacentre
        ],
        "replicas": [each for each in made if each["kind"] == "registry"],
        "services": [each for each in made if each["kind"] != "registry"],
        "callers": {kind: callers(kind) for kind in MOUNTS if kind in KINDS},
        "tls": settings.tls is not None,
        "config": config,
        "file": text,
    }
    if settings.compute:
        deployment["programs"] = {each.file: read(each.file) for each in settings.compute.values()}
    return json.dumps({"deployment": deployment}, indent=2, ensure_ascii=False) + "\n"


def callers(kind: str) -> list[dict[str, Any]]:
    """Returns the kinds of processes that may call ``kind``. ``here``: only processes of the same datacentre."""
    own = [KINDS[part].health for part in PARTS] if kind == DATACENTRE else [KINDS[kind].health]
    here: dict[str, bool] = {}
    for method, rights in RIGHTS.items():
        if method[1:].partition("/")[0] in (*own, *_MORE.get(kind, ()), *_EVERYWHERE):
            for role, right in rights.items():
                for each in PARTS if role is Role.DATACENTRE else (str(role),):
                    here[each] = here.get(each, True) and right.same_datacentre
    return [{"kind": each, "here": here[each]} for each in sorted(here)] if KINDS[kind].health else []


def _made(settings: Settings, each: Service, config: str) -> dict[str, Any]:
    host, port = host_and_port(each.process.address or "")
    name, kind = each.process.datacentre, each.kind
    listen = [] if kind == "registry" else ["--listen", f"0.0.0.0:{port}"]
    listen += ["--address", f"$(POD_IP):{port}"] if each.found else []
    shows = kind == "status" or (kind == DATACENTRE and "status" in settings.inside(name))
    found = {
        "name": host.partition(".")[0], "host": host, "kind": kind, "datacentre": name,
        "region": each.process.region or settings.region(name), "identity": each.process.identity,
        "port": port, "memory": f"{MEMORY.get(kind, 384)}Mi", "mounts": _mounts(settings, kind, name),
        "page": _page(settings.datacentre[name].page) if shows else None,
        "between": each.process.address in {called.address for called in called_across(settings)},
    }  # fmt: skip
    if kind == "registry":
        return {**found, "replica": each.process.name}
    return {**found, "scaled": each.found, "arguments": each.serve(config, *listen)}


def _page(address: str) -> dict[str, Any]:
    host, port = host_and_port(address)
    return {"name": host.partition(".")[0], "port": port}


def _mounts(settings: Settings, kind: str, datacentre: str) -> list[str]:
    """Returns the volumes of a kind of process, without the logs if they are elsewhere."""
    pipeline = settings.datacentre.get(datacentre)
    local = pipeline is not None and any(each.startswith(LOGS) for each in (pipeline.primary, pipeline.foreign))
    return [each for each in MOUNTS[kind] if each != "logs" or local]


def _problems(settings: Settings) -> Iterator[str]:
    """Yields settings that the chart cannot run: key, value, and a valid setting."""
    if settings.wan is not None:
        yield "wan: simulates a network between regions, but clusters have a real one; remove it"
    yield from directory("key_file", settings.key_file, KEY_FILE)
    yield from directory("tls.directory", settings.tls.directory if settings.tls else CERTIFICATES, CERTIFICATES)
    for table, names in (("registry.replicas", settings.registry.replicas), ("datacentre", settings.datacentre)):
        for name in names:
            if not re.fullmatch(_LABEL, name):
                yield f"{table}.{name}: becomes a name in Kubernetes: use only a-z, 0-9 and -, starting with a letter"
    for name, pipeline in settings.datacentre.items():
        for side, place in (("primary", pipeline.primary), ("foreign", pipeline.foreign)):
            if "://" not in place and not place.startswith((LOGS, HOST_LOGS)):
                yield (
                    f"datacentre.{name}.{side} = {place!r}: must be a URL, or in '/logs' (the logs' volume), "
                    "or in '/var/log' (the node's logs, mounted by the chart's value `volumes`)"
                )
    made = [f"{kind}-{name}" for kind in ("joiner", "operator") for name in settings.datacentre]
    yield from problems(settings, ["registry", *made])
    across = {each.address for each in called_across(settings)}
    taken: dict[tuple[str, str], str] = {}
    pages = [each for each in processes(settings) if each.kind == "status" and each.arguments is None]
    for each in [*listening(settings), *pages]:
        first, _, rest = host_and_port(each.address or "")[0].partition(".")
        if not re.fullmatch(_LABEL, first):
            yield (
                f"{each.title}: {each.address}: the host must be a Service's name: a-z, 0-9 and -, "
                "starting with a letter"
            )
        if rest and each.address not in across:
            yield f"{each.title}: {each.address}: is internal to its cluster, so use a Service's name without dots"
        if (other := taken.setdefault((first, rest and each.region), each.title)) != each.title:
            yield f"{each.title}: {each.address}: is also the Service of {other}; give each its own Service"
