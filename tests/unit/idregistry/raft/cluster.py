"""Replicas on threads of this process, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.raft.api import Group, ProposalOutcome, StateMachine
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.options import RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello, Network, Receiver

GROUP = 3


class Recorder:
    """A state machine that keeps its commands."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, command: bytes) -> tuple[int, int]:
        if command == b"poison":
            raise ValueError("poison")
        self.commands.append(command)
        return index, len(self.commands)

    def snapshot(self) -> Iterable[bytes]:
        return list(self.commands)

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.commands = list(chunks)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def propose(group: Group, command: bytes, timeout: float = 10.0) -> ProposalOutcome:
    """Waits for the outcome."""
    answered = threading.Event()
    outcomes: list[ProposalOutcome] = []

    def done(outcome: ProposalOutcome) -> None:
        outcomes.append(outcome)
        answered.set()

    group.propose(command, timeout=timeout, done=done)
    assert answered.wait(timeout + 10)
    assert len(outcomes) == 1
    return outcomes[0]


class MemoryHub:
    """Replicas of one process: frames arrive at once, on the sender's thread."""

    def __init__(self) -> None:
        self._receivers: dict[str, Receiver] = {}
        self.cut: set[tuple[str, str]] = set()  # (sender, receiver) pairs whose frames are lost

    def network(self) -> Network:
        return _MemoryNetwork(self)

    def deliver(self, hello: Hello, peer: str, messages: Sequence[GroupMessage]) -> None:
        receiver = self._receivers.get(peer)
        if receiver is None or (hello.name, peer) in self.cut:
            return
        refusal = receiver.receive(hello, messages)
        sender = self._receivers.get(hello.name)
        if refusal is not None and sender is not None:
            sender.refused(peer, refusal)

    def join(self, name: str, receiver: Receiver) -> None:
        self._receivers[name] = receiver

    def leave(self, name: str) -> None:
        self._receivers.pop(name, None)


class _MemoryNetwork:
    def __init__(self, hub: MemoryHub) -> None:
        self._hub = hub
        self._hello: Hello | None = None

    def start(self, hello: Hello, receiver: Receiver) -> None:
        self._hello = hello
        self._hub.join(hello.name, receiver)

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        if self._hello is not None:
            self._hub.deliver(self._hello, peer, messages)

    def stop(self) -> None:
        if self._hello is not None:
            self._hub.leave(self._hello.name)


def host_of(name: str, directory: Path, machines: Mapping[int, StateMachine], **more: Any) -> RaftHost:
    """A single replica on a real disk, unless told otherwise."""
    usual = {"peers": {name: "nowhere:1"}, "disk": RealDisk(), "clock": SystemClock()}
    return RaftHost(name=name, directory=directory, machines=machines, **usual | more)


@contextmanager
def running(host: RaftHost) -> Iterator[RaftHost]:
    host.start()
    try:
        yield host
    finally:
        host.stop()


class Cluster:
    """``names`` replicas over a MemoryHub, on real disks under ``directory``."""

    def __init__(
        self,
        directory: Path,
        names: str = "abc",
        options: RaftOptions | None = None,
        machine: Callable[[], Recorder] = Recorder,
    ) -> None:
        self.hub = MemoryHub()
        self.names = names
        self.machines: dict[str, Recorder] = {}
        self.hosts: dict[str, RaftHost] = {}
        self._directory, self._options, self._machine = directory, options, machine

    def start(self, name: str) -> RaftHost:
        self.machines[name] = self._machine()
        peers, network = dict.fromkeys(self.names, "nowhere:1"), self.hub.network()
        machines = {GROUP: self.machines[name]}
        host = host_of(name, self._directory / name, machines, peers=peers, options=self._options, network=network)
        self.hosts[name] = host
        host.start()
        return host

    def __enter__(self) -> Cluster:
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.stop()

    def cut(self, *names: str) -> None:
        """Cuts a replica off from all others, until ``hub.cut`` is cleared."""
        self.hub.cut |= {pair for a in names for b in self.names for pair in ((a, b), (b, a))}

    def add(self, name: str, number: int) -> Recorder:
        machine = Recorder()
        self.hosts[name].add_group(number, machine).result(20)
        return machine

    def group(self, name: str, number: int = GROUP) -> Group:
        return self.hosts[name].group(number)

    def leader(self, among: str | None = None, number: int = GROUP) -> str:
        """Waits for a replica that leads."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [n for n in among or self.names if self.group(n, number).state().is_leader]
            return bool(found)

        wait_until(look)
        return found[0]

    def wipe(self, name: str, directory: Path) -> None:
        """It starts with an empty directory, and is refused at once or a moment later."""
        self.hosts[name].stop()
        (directory / name).rename(directory / "gone")
        with suppress(RaftStopped):
            self.start(name)
