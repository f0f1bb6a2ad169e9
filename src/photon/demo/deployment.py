"""The demo's deployment: its file, directories and processes. One datacentre; the registry has three replicas."""

from __future__ import annotations

import os
from pathlib import Path

from photon.embedded.supervisor import Service, free_ports

DATACENTRE = "east"
REPLICAS = ("r1", "r2", "r3")
HEALTH = {
    "registry": "photon.v1.Registry",
    "eventstore": "photon.v1.EventStore",
    "joiner": "photon.v1.Joiner",
    "dispatcher": "photon.v1.Dispatcher",
}


class Deployment:
    """A deployment below one directory, on free ports of this machine."""

    def __init__(self, directory: Path, *, unmatched_after_s: float) -> None:
        self.directory = directory
        self.primary = directory / DATACENTRE / "queries"
        self.foreign = directory / DATACENTRE / "clicks"
        self.output = directory / DATACENTRE / "output"
        self.state = directory / DATACENTRE / "state"
        self.file = directory / "photon.toml"
        self._unmatched_after_s = unmatched_after_s
        ports = free_ports(len(REPLICAS) + 3)
        self.replicas = {name: f"127.0.0.1:{port}" for name, port in zip(REPLICAS, ports, strict=False)}
        self.eventstore, self.joiner, self.dispatcher = (f"127.0.0.1:{port}" for port in ports[len(REPLICAS) :])

    def write(self) -> None:
        """Makes the directories, the deployment file and its key."""
        for directory in (self.primary, self.foreign, self.output, self.state):
            directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "key").write_bytes(os.urandom(32))
        self.file.write_text(self._toml())

    def services(self) -> list[Service]:
        """Every process, in the order of their start."""
        services = [
            self._service("registry", name, ("--replica", name), address) for name, address in self.replicas.items()
        ]
        where = ("--datacentre", DATACENTRE)
        slot = f"{DATACENTRE}-1"
        services.append(self._service("eventstore", DATACENTRE, where, self.eventstore))
        services.append(self._service("joiner", slot, (*where, "--slot", slot), self.joiner))
        services.append(self._service("dispatcher", DATACENTRE, where, self.dispatcher))
        return services

    def _service(self, noun: str, name: str, arguments: tuple[str, ...], address: str) -> Service:
        command = (noun, "serve", "--config", str(self.file), *arguments, "--stop-with-parent")
        return Service(
            f"{noun} {name}", command, self.directory / "logs" / f"{noun}-{name}.log", address, HEALTH[noun]
        )

    def _toml(self) -> str:
        replicas = "".join(
            f'\n[registry.replicas.{name}]\naddress = "{address}"\ndirectory = "registry/{name}"\n'
            for name, address in self.replicas.items()
        )
        return f"""\
key_file = "key"

[join.clicks]
unmatched_after = "{self._unmatched_after_s}s"
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
shards = 2
tolerate = 1
{replicas}
[datacentre.{DATACENTRE}]
join = "clicks"
primary = "{DATACENTRE}/queries"
foreign = "{DATACENTRE}/clicks"
output = "{DATACENTRE}/output"
state = "{DATACENTRE}/state"
eventstore = "{self.eventstore}"
dispatcher = "{self.dispatcher}"
[datacentre.{DATACENTRE}.joiners.{DATACENTRE}-1]
address = "{self.joiner}"
"""
