"""One replica as a process of its own: proposes and reports what its parent writes to its standard input.

Usage: python -m tests.integration.raft_node NAME DIRECTORY NAME=HOST:PORT…

Lines in: ``p NUMBER`` proposes a number, ``state``, ``dump``, ``b COUNT SIZE WINDOW`` measures; ``add GROUP`` and
``remove GROUP`` change the groups, ``groups`` tells them; a group's number behind ``p NUMBER``, ``state`` or ``dump``
is another than the first. Lines out are JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc.aio
import structlog
import uvloop

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.raft.api import Applied, NotLeader, ProposalOutcome
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import known_groups
from photon.idregistry.raft.options import RaftOptions

GROUP = 7
_NUMBER = struct.Struct(">Q")


class NumberList:
    """The numbers proposed, in order of their commits."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def apply(self, index: int, command: bytes) -> int:
        self.numbers.append(_NUMBER.unpack_from(command)[0])
        return index

    def snapshot(self) -> Iterable[bytes]:
        for at in range(0, len(self.numbers), 1000):
            part = self.numbers[at : at + 1000]
            yield struct.pack(f">{len(part)}Q", *part)

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.numbers = [number for chunk in chunks for (number,) in _NUMBER.iter_unpack(chunk)]


_saying = threading.Lock()


def say(**fields: Any) -> None:
    """From any thread, a line at a time."""
    with _saying:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def outcome_name(outcome: ProposalOutcome) -> str:
    return (
        "applied" if isinstance(outcome, Applied) else "not_leader" if isinstance(outcome, NotLeader) else "unknown"
    )


def measure(host: RaftHost, count: int, size: int, window: int) -> None:
    """Proposes ``count`` commands of ``size`` bytes, ``window`` at a time."""
    group = host.group(GROUP)
    room = threading.Semaphore(window)
    took: list[float] = []
    began = time.perf_counter()
    for number in range(count):
        room.acquire()
        at = time.perf_counter()

        def done(outcome: ProposalOutcome, at: float = at) -> None:
            assert isinstance(outcome, Applied), outcome
            took.append(time.perf_counter() - at)
            room.release()

        group.propose(_NUMBER.pack(number) + bytes(size - 8), timeout=10, done=done)
    for _ in range(window):
        room.acquire()
    seconds = time.perf_counter() - began
    took.sort()
    say(measured=count / seconds, p50_ms=1e3 * took[count // 2], p99_ms=1e3 * took[count * 99 // 100])


def command(host: RaftHost, machines: dict[int, NumberList], words: list[str]) -> None:
    if words[0] == "p":
        number, group = int(words[1]), _group(words[2:])
        host.group(group).propose(
            _NUMBER.pack(number) + bytes(100),
            timeout=2,
            done=lambda o: say(number=number, group=group, outcome=outcome_name(o)),
        )
    elif words[0] == "state":
        say(state=asdict(host.group(_group(words[1:])).state()), healthy=host.healthy)
    elif words[0] == "failure":
        say(failure=str(host.failure))
    elif words[0] == "dump":
        numbers = list(machines[_group(words[1:])].numbers)
        say(numbers=numbers, hash=hashlib.sha256(repr(numbers).encode()).hexdigest())
    elif words[0] == "add":
        machine = machines[int(words[1])] = NumberList()
        host.add_group(int(words[1]), machine).result()
        say(groups=host.numbers)
    elif words[0] == "remove":
        host.remove_group(int(words[1])).result()
        say(groups=host.numbers)
    elif words[0] == "groups":
        say(groups=host.numbers, dropped=host.dropped)
    elif words[0] == "b":
        measure(host, *map(int, words[1:]))


def _group(words: list[str]) -> int:
    return int(words[0]) if words else GROUP


async def main(name: str, directory: str, *members: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # standard output is the parent's
    peers = dict(member.split("=") for member in members)
    known = known_groups(RealDisk(), Path(directory))
    machines = {number: NumberList() for number in {GROUP, *known.present}}
    host = RaftHost(
        name=name,
        peers=peers,
        directory=Path(directory),
        machines=machines,
        disk=RealDisk(),
        clock=SystemClock(),
        options=RaftOptions(log_bytes=int(os.environ.get("LOG_BYTES", "20000")), log_margin=5_000),
    )
    server = grpc.aio.server()
    host.add_to_server(server)
    server.add_insecure_port(peers[name])
    await server.start()
    host.start()
    say(started=name)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await loop.run_in_executor(None, command, host, machines, line.split())
    host.stop()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
