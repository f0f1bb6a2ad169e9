"""Replicas over gRPC in one process: one port each, all groups on one stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from photon.config.clock import SystemClock
from photon.idregistry.raft import peer_pb2, wire
from photon.idregistry.raft.api import Applied
from photon.idregistry.raft.options import FRAME_BYTES_MAX, QUEUE_BYTES_MAX
from photon.idregistry.raft.transport import Hello
from tests.unit.idregistry.raft.cluster import Recorder, host_of, propose
from tests.unit.idregistry.served import until

HELLO = Hello("a", b"0" * 16, 1)


async def test_three_replicas_two_groups(tmp_path: Path) -> None:
    servers = [grpc.aio.server() for _ in range(3)]
    peers = {name: f"127.0.0.1:{s.add_insecure_port('127.0.0.1:0')}" for name, s in zip("abc", servers, strict=True)}
    machines = {name: {1: Recorder(), 2: Recorder()} for name in peers}
    hosts = {name: host_of(name, tmp_path / name, machines[name], peers=peers) for name in peers}
    try:
        for host, server in zip(hosts.values(), servers, strict=True):
            host.add_to_server(server)
            await server.start()
            await asyncio.to_thread(host.start)
        for group in (1, 2):
            await until(lambda group=group: any(h.group(group).state().is_leader for h in hosts.values()))
            leader = next(h for h in hosts.values() if h.group(group).state().is_leader)
            for size in (10, 30_000, 1 << 20):
                outcome = await asyncio.to_thread(propose, leader.group(group), bytes(size))
                assert isinstance(outcome, Applied)
        await until(
            lambda: all(len(machine.commands) == 3 for each in machines.values() for machine in each.values())
        )
        await _strangers_are_refused(peers["a"], hosts["b"]._identity.hello.disk)
        leaving = hosts["a"]
        await until(lambda: not leaving.waited_for)
        stopping = asyncio.create_task(servers[0].stop(3600))  # it would wait for the peers' streams as long
        leaving.hang_up()
        async with asyncio.timeout(20):
            await stopping
    finally:
        for host in hosts.values():
            await asyncio.to_thread(host.stop)
        for server in servers:
            await server.stop(0)


async def _strangers_are_refused(address: str, disk: bytes) -> None:
    frames = {
        "check the addresses": peer_pb2.PeerFrame(sender="b", receiver="c", epoch=1),
        "knows no peer x": peer_pb2.PeerFrame(sender="x", receiver="a", epoch=1),
        "membership epoch": peer_pb2.PeerFrame(sender="b", receiver="a", epoch=2, disk=disk),
        "another disk": peer_pb2.PeerFrame(sender="b", receiver="a", epoch=1, disk=b"x"),
    }
    async with grpc.aio.insecure_channel(address) as channel:
        for reason, frame in frames.items():
            ack = await wire._PEER.stub(channel).Exchange(iter([frame]))
            assert reason in ack.reason
            assert (ack.refusal == peer_pb2.REFUSAL_OTHER_DISK) == (reason == "another disk")


@pytest.fixture
def link() -> wire._Link:
    link = wire._Link("b", "127.0.0.1:1", None, SystemClock())
    link._hello, link._loop = HELLO, asyncio.new_event_loop()
    link._loop.close()  # nothing is sent
    return link


def test_the_queue_of_a_peer_is_bounded_and_drops_the_oldest(link: wire._Link) -> None:
    for number in range(40):
        link.send([(number, bytes(1 << 20))])
    assert link.dropped == 40 - QUEUE_BYTES_MAX // (1 << 20)
    assert link._next_frame().messages[0].group == link.dropped


def test_frames_stay_below_their_limit_and_lose_nothing(link: wire._Link) -> None:
    link.send([(number, bytes(1_000_000)) for number in range(10)])
    groups = []
    while link._queue:
        frame = link._next_frame()
        assert (frame.sender, frame.receiver, frame.disk, frame.epoch) == ("a", "b", HELLO.disk, 1)
        assert sum(len(m.payload) for m in frame.messages) <= FRAME_BYTES_MAX
        groups += [m.group for m in frame.messages]
    assert groups == list(range(10))
    assert link._bytes == 0
