"""Garbage at every port of a running deployment, while it joins: every process lives, answers and stays small."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import grpc
import pytest

from photon.config.tls import OPERATOR, Towards, open_blocking_channel
from photon.eventstore import eventstore_pb2
from photon.idregistry import registry_pb2
from photon.idregistry.raft import peer_pb2
from photon.joiner import joiner_pb2
from photon.lab.demo.deployment import CERTIFICATES, Shape
from photon.lab.wan import wan_pb2
from photon.supervision.health import Health, ask_health
from photon.supervision.supervisor import Service
from photon.tables.timestamps import timestamps_pb2
from tests.integration.commands import drawn_seed
from tests.integration.port_attacks import ATTACKS, Connect, HeldConnections, plain
from tests.integration.rig import Rig

FULL = bool(os.environ.get("PHOTON_FULL"))
ROUNDS = 10 if FULL else 1
# Growth of a process's greatest resident memory. One flood takes 48 MiB while it is decoded (30 are left afterwards,
# however many come), and two may come at once.
GROWTH_MAX = 96 << 20
HEALTHY_S = 20.0
HELD_EACH = 5
FLOOD_BYTES = 8 << 20
FILES = (registry_pb2, peer_pb2, eventstore_pb2, joiner_pb2, wan_pb2, timestamps_pb2)
METHODS = [
    f"/{service.full_name}/{method.name}"
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
] + ["/grpc.health.v1.Health/Check", "/no.such.Service/Method", ""]
# Number of a repeated field.
FLOODS = {
    "/photon.v1.RaftPeer/Exchange": 5,
    "/photon.v1.Joiner/Join": 7,
    "/photon.v1.EventStore/LookUp": 2,
    "/photon.v1.EventStore/Seek": 2,
    "/photon.v1.Registry/ExtendWitness": 3,
}
GUARD = """
import os, pickle, sys
import _pickle

def note(what):
    with open(os.environ["PHOTON_TEST_PICKLE"], "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def refuse(*arguments, **named):
    note("unpickled")
    raise RuntimeError("this process must not unpickle")

for module in (pickle, _pickle):
    module.load = module.loads = refuse
    module.Unpickler = type("Unpickler", (module.Unpickler,), {"__init__": refuse})
pickle._Unpickler.__init__ = refuse
note("armed")
os.register_at_fork(after_in_child=lambda: note("armed"))
"""


@pytest.fixture
def pickle_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes started from now on, and their copies, write a line there when they start and when they unpickle
    anything, which then fails."""
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    monkeypatch.setenv("PYTHONPATH", f"{guard}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PHOTON_TEST_PICKLE", str(tmp_path / "pickle.log"))
    return tmp_path / "pickle.log"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_garbage_at_every_port(tmp_path: Path, pickle_log: Path, tls: bool) -> None:
    seed = drawn_seed()
    shape = Shape(datacentres=("east",), joiners=1, caches=1, round_trip_s=0.001, tls=tls)
    rig = Rig(tmp_path / "deployment", seed, seconds=3.0, shape=shape, copies=False)  # armed before the first import
    pids: set[int] = set()

    async def drill(rig: Rig) -> None:
        pids.update(await attacked(rig, random.Random(seed), tmp_path / "deployment" / CERTIFICATES if tls else None))

    await rig.run(drill)
    lines = _lines(pickle_log)
    assert [line for line in lines if line.startswith("unpickled")] == []
    assert {f"armed {pid}" for pid in pids} <= set(lines)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def attacked(rig: Rig, draw: random.Random, certificates: Path | None) -> set[int]:
    """Runs every attack on every port; returns the processes' ids, which must stay the same."""
    services = rig.demo.deployment.services()
    pids = {service.name: rig.supervisor.pid(service.name) for service in services}
    before = {name: _memory(pid, "VmRSS") for name, pid in pids.items()}
    held = HeldConnections()
    try:
        for where in _addresses(rig, services):
            await asyncio.to_thread(held.hold, where, HELD_EACH)
        for _ in range(ROUNDS):
            attacks = [partial(_attack, service, random.Random(draw.random()), certificates) for service in services]
            attacks += [
                partial(_raw_attacks, [partial(plain, route.listen)], random.Random(draw.random()))
                for route in rig.demo.deployment.routes
            ]
            await asyncio.gather(*map(asyncio.to_thread, attacks))  # all of them in sequence would take long
            await _all_well(rig, services, pids, before)
    finally:
        held.close()
    return {pid for pid in pids.values() if pid is not None}


def _addresses(rig: Rig, services: Sequence[Service]) -> list[str]:
    ports = [service.address for service in services if service.address is not None]
    assert len(ports) == len(services)
    return [*ports, *(route.listen for route in rig.demo.deployment.routes)]


async def _all_well(
    rig: Rig, services: Sequence[Service], pids: dict[str, int | None], before: dict[str, int]
) -> None:
    await asyncio.gather(*(_serving(service) for service in services))
    for service in services:
        pid = rig.supervisor.pid(service.name)
        assert pid == pids[service.name], f"{service.name} ended: {service.log.read_text()[-2000:]}"
        grown = _memory(pid, "VmHWM") - before[service.name]
        assert grown < GROWTH_MAX, f"{service.name} has grown by {grown >> 20} MiB"


async def _serving(service: Service) -> None:
    """Waits until it reports that it serves, HEALTHY_S at most."""
    assert service.address is not None
    deadline = time.monotonic() + HEALTHY_S
    while await ask_health(service.address, service.health, 2.0, service.to) is not Health.SERVING:
        assert time.monotonic() < deadline, f"{service.name} does not serve: {service.log.read_text()[-2000:]}"
        await asyncio.sleep(0.1)


def _memory(pid: int | None, row: str) -> int:
    """Bytes, from the kernel."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(row):
            return int(line.split()[1]) << 10
    raise AssertionError(row)


def _attack(service: Service, draw: random.Random, certificates: Path | None) -> None:
    """From outside, and with TLS also from inside with a good certificate."""
    address = service.address
    assert address is not None
    connects: list[Connect] = [partial(plain, address)]
    if service.to is not None and certificates is not None:
        context = _context(certificates)
        name = service.to.options()[0][1]
        connects.append(lambda: context.wrap_socket(plain(address), server_hostname=str(name)))
    _raw_attacks(connects, draw)
    _random_payloads(address, service.to, draw)


def _raw_attacks(connects: Sequence[Connect], draw: random.Random) -> None:
    for connect in connects:
        for attack in ATTACKS:
            attack(connect, draw, METHODS[:-1])


def _context(certificates: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    context.load_cert_chain(certificates / f"{OPERATOR}.crt", certificates / f"{OPERATOR}.key")
    context.set_alpn_protocols(["h2"])
    return context


def _random_payloads(address: str, to: Towards | None, draw: random.Random) -> None:
    """Valid gRPC, with bodies that the methods do not expect, or expected ones that make no sense."""
    with open_blocking_channel(address, (("grpc.max_send_message_length", -1),), to) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        for method in METHODS:
            served = _answer(channel, method, b"") is not grpc.StatusCode.UNIMPLEMENTED
            for payload in _payloads(method, draw) if served else [draw.randbytes(10_000)]:
                assert _answer(channel, method, payload) is not grpc.StatusCode.UNAVAILABLE, method


def _answer(channel: grpc.Channel, method: str, payload: bytes) -> grpc.StatusCode:
    """How the other end ended the call."""
    call = channel.stream_stream(method, lambda body: body, lambda body: body)
    try:
        for _ in call(iter([payload]), timeout=0.3):
            pass
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _payloads(method: str, draw: random.Random) -> Iterator[bytes]:
    for size in (1, 100, 10_000, 1 << 20):
        yield draw.randbytes(size)
    yield b"\x0a\xff\xff\xff\xff\x07" + draw.randbytes(100)  # a field of 2 GiB
    yield b"\x0a\x7f" * 1000  # deep
    yield _every_field(draw)
    sizes = [FLOOD_BYTES, FLOOD_BYTES // 2 - 1000] if method in FLOODS else [FLOOD_BYTES // 4]  # not all too long
    for size in sizes:
        yield bytes([FLOODS.get(method, 1) << 3 | 2, 0]) * (size // 2)  # millions of empty fields


def _every_field(draw: random.Random) -> bytes:
    """Fields of every number and kind."""
    body = bytearray()
    for number in range(1, 17):
        kind = draw.choice([0, 1, 2, 5])
        tag = number << 3 | kind
        body += bytes([tag & 0x7F | (0x80 if tag > 127 else 0), *([tag >> 7] if tag > 127 else [])])
        body += {
            0: b"\xff\xff\xff\xff\x0f",
            1: draw.randbytes(8),
            2: b"\x20" + draw.randbytes(32),
            5: draw.randbytes(4),
        }[kind]
    return bytes(body)


def test_the_guard_refuses_to_unpickle(pickle_log: Path) -> None:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", "import pickle; pickle.loads(pickle.dumps(1))"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "must not unpickle" in done.stderr
    assert [line.split()[0] for line in pickle_log.read_text().splitlines()] == ["armed", "unpickled"]
