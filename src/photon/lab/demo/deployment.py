"""The demo's deployment: its file, directories and ports. Two datacentres and a third region for the odd replica."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from photon.config.loader import load
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, Tls
from photon.fleet.processes import identities
from photon.lab.demo.feed import Logs
from photon.supervision.deployment import Deployment
from photon.supervision.ports import free_ports
from photon.supervision.routes import routes_of, write_routes

DATACENTRES = ("east", "west")
# The third one is in a region without a pipeline: so either datacentre may be lost
REPLICAS = {"r1": "east", "r2": "west", "r3": "central"}
CERTIFICATES = "certs"
CERTIFICATE_DAYS = 90


@dataclass(frozen=True, slots=True)
class Place:
    primary: Path
    foreign: Path
    output: Path
    state: Path

    @property
    def logs(self) -> Logs:
        return Logs(self.primary, self.foreign)


def places(settings: Settings, base: Path) -> dict[str, Place]:
    """The places of each datacentre with a pipeline. ``base``: directory of the deployment file."""
    found = settings.datacentre.items()
    return {n: Place(*(base / each for each in (p.primary, p.foreign, p.output, p.state))) for n, p in found}


@dataclass(frozen=True, slots=True)
class Shape:
    datacentres: tuple[str, ...] = DATACENTRES
    joiners: int = 2  # joiners in each datacentre; several are apart
    dispatchers: int = 1  # in each datacentre
    head_start_s: float | None = None  # how long an event is left to its home datacentre; None means as measured
    caches: int = 0  # cache nodes in each datacentre; none: the event store keeps recent records itself
    cache: str = ""  # maximum size of each cache; empty: the default
    round_trip_s: float | None = 0.03  # between any two regions; None means no proxy between them
    unmatched_after_s: float = 4.0
    shards: int = 2
    # The registry's replicas: name -> datacentre
    replicas: Mapping[str, str] = field(default_factory=lambda: REPLICAS)
    together: bool = False  # one process per datacentre; false: one per part
    replicas_together: bool = False  # include its replicas of the registry in that process
    tls: bool = False  # mutual TLS between all processes, with generated certificates


class DemoDeployment:
    """A deployment below one directory, on free ports of this machine."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.shape = shape
        per_datacentre = 3 + shape.caches + shape.joiners + shape.dispatchers
        # Maximum number of the proxy's ports; all are drawn together, so that none is drawn twice.
        between = len(shape.replicas) * len({*shape.replicas.values(), *shape.datacentres})
        ports = iter(free_ports(len(shape.replicas) + per_datacentre * len(shape.datacentres) + 1 + between))
        self.replicas = {name: f"127.0.0.1:{next(ports)}" for name in shape.replicas}
        self.wan = f"127.0.0.1:{next(ports)}"  # the proxy's control address, if there is a proxy
        pipelines = ""
        for name in shape.datacentres:
            for made in ("queries", "clicks", "output", "state"):
                (directory / name / made).mkdir(parents=True, exist_ok=True)
            pipelines += _pipeline(name, [f"127.0.0.1:{next(ports)}" for _ in range(per_datacentre)], shape)
        (directory / "key").write_bytes(os.urandom(32))
        file = directory / "photon.toml"
        tolerate = (len(shape.replicas) - 1) // 2
        head = _HEAD.format(after=shape.unmatched_after_s, shards=shape.shards, tolerate=tolerate)
        file.write_text(head + self._middle() + pipelines)
        settings = load(file, environment={})
        self.places = places(settings, directory)
        self.tls = _certificates(directory / CERTIFICATES, settings) if shape.tls else None
        routes = routes_of(settings, list(ports))
        self.deployment = Deployment(file, settings, directory / "run", routes, self.tls)
        if routes:
            self.deployment.run.mkdir()
            write_routes(self.deployment.routes_file, routes)

    def _middle(self) -> str:
        trip = self.shape.round_trip_s
        wan = "" if trip is None else f'\n[wan]\ncontrol = "{self.wan}"\nround_trip = {trip}\n'
        tls = f'\n[tls]\ndirectory = "{CERTIFICATES}"\n' if self.shape.tls else ""
        start = self.shape.head_start_s
        dispatcher = "" if start is None else f'head_start = "{start:g}s"\n'
        limits = f'\n[limits]\ncache = "{self.shape.cache}"\n' if self.shape.cache else ""
        return (
            wan
            + tls
            + (f"\n[dispatcher]\n{dispatcher}" if dispatcher else "")
            + limits
            + "".join(
                f'\n[registry.replicas.{name}]\naddress = "{address}"\ndirectory = "registry/{name}"\n'
                f'datacentre = "{self.shape.replicas[name]}"\n'
                + ("together = true\n" if self._is_together(name) else "")
                for name, address in self.replicas.items()
            )
        )

    def _is_together(self, replica: str) -> bool:
        return self.shape.replicas_together and self.shape.replicas[replica] in self.shape.datacentres


def _certificates(directory: Path, settings: Settings) -> Tls:
    """Makes an authority and all certificates; returns the operator's."""
    from photon.config.certificate_files import begin, issue_missing, load

    now = datetime.now(UTC)
    begin(directory, "photon demo", now, days=CERTIFICATE_DAYS)
    issue_missing(directory, directory, identities(settings), now, days=CERTIFICATE_DAYS)
    return load(directory, OPERATOR, now)


_HEAD = """\
key_file = "key"

[join.clicks]
unmatched_after = "{after}s"
identical_copies = true
[join.clicks.primary]
format = "jsonl"
key = "query_id"
[join.clicks.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = {{ field = "time_us", unit = "us" }}

[clock]
uncertainty = "1s"

[registry]
shards = {shards}
tolerate = {tolerate}
"""


def _pipeline(name: str, addresses: list[str], shape: Shape) -> str:
    own, eventstore, verifier, *others = addresses
    nodes, others = others[: shape.caches], others[shape.caches :]
    joiners, dispatchers = others[: shape.joiners], others[shape.joiners :]
    parts = {"cache": nodes, "joiner": joiners, "dispatcher": dispatchers}
    apart = {
        part: at for part, at in parts.items() if len(at) > 1 or (at and (not shape.together or part == "cache"))
    }
    apart |= {} if shape.together else {"eventstore": [eventstore], "verifier": [verifier]}
    return f"""
[datacentre.{name}]
join = "clicks"
primary = "{name}/queries"
foreign = "{name}/clicks"
address = "{own}"
status = ""
joiners = {shape.joiners}
dispatchers = {shape.dispatchers}
apart = {{ {", ".join(f"{part} = {json.dumps(at)}" for part, at in apart.items())} }}
"""
