"""The proxy between real sockets: delays, faults, ends."""

import asyncio
import contextlib
import random
import socket
import time

import pytest

from photon.config.serving import CannotListen
from photon.lab.wan.links import Change, Fault
from photon.lab.wan.proxy import Proxy
from photon.lab.wan.tunnel import IN_FLIGHT_MAX
from photon.supervision.routes import Route
from tests.unit.lab.wan.peers import Connection, Server, connected, echo, on_uvloop, proxied, silent, until, within
from tests.unit.refusals import one_line

ONE_READ = 1 << 20  # more than an event loop reads at once
EARLY_S = 0.002  # timers of the event loop and the line's slack, for two ways


def both(fault: Fault) -> list[Change]:
    return [Change("east", "west", fault=fault), Change("west", "east", fault=fault)]


async def open_to(server: Server, writer: asyncio.StreamWriter) -> Connection:
    """The target's side of a client's connection, once a word of it has come there."""
    writer.write(b"open")
    target = await server.connection()
    await within(target[0].readexactly(4))
    return target


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> tuple[bytes, float]:
    """An echo's answer, and the time it took."""
    since = time.monotonic()
    writer.write(data)
    return await within(reader.readexactly(len(data))), time.monotonic() - since


@on_uvloop
async def test_a_message_takes_half_of_the_round_trip_each_way() -> None:
    since = time.monotonic()
    async with proxied(Server(echo), delay_s=0.05) as proxy, connected(proxy) as (reader, writer):
        await ask(reader, writer, b"first")
        first = time.monotonic() - since
        took = [(await ask(reader, writer, b"again"))[1] for _ in range(8)]
        assert first >= 0.2 - EARLY_S  # a round trip to open, one for the message
        assert min(took) >= 0.1 - EARLY_S
        assert min(took) < 0.19


@on_uvloop
async def test_a_stream_comes_out_whole_and_in_order_while_delays_change() -> None:
    rng = random.Random(7)
    data = rng.randbytes(4 << 20)
    async with proxied(Server(echo), delay_s=0.02) as proxy, connected(proxy) as (reader, writer):

        async def send() -> None:
            sent = 0
            while sent < len(data):
                size = rng.randrange(1, 100_000)
                writer.write(data[sent : sent + size])
                await writer.drain()
                sent += size
                if rng.random() < 0.3:
                    source, destination = rng.sample(["east", "west"], 2)
                    assert proxy.set([Change(source, destination, rng.random() / 20)]) == ""
                await asyncio.sleep(0)
            writer.write_eof()

        sending = asyncio.create_task(send())
        assert await within(reader.read(-1)) == data
        await sending
        await until(lambda: proxy.directions()[0].connections == 0)
        assert [each.bytes for each in proxy.directions()] == [len(data), len(data)]


@on_uvloop
async def test_a_lower_delay_helps_open_connections_at_once() -> None:
    async with proxied(Server(echo)) as proxy, connected(proxy) as (reader, writer):
        await ask(reader, writer, b"open")
        proxy.set([Change("east", "west", delay_s=60.0)])
        writer.write(b"slow")
        assert await silent(reader)
        proxy.set([Change("east", "west", delay_s=0.0)])
        assert await within(reader.readexactly(4)) == b"slow"


@on_uvloop
async def test_a_silent_cut_holds_everything_and_healing_delivers_it_in_order() -> None:
    server = Server(echo)
    async with proxied(server) as proxy, connected(proxy) as (reader, writer):
        await ask(reader, writer, b"open")
        proxy.set(both(Fault.DROP))
        writer.write(b"one ")
        assert await silent(reader)
        writer.write(b"two")
        async with connected(proxy) as (late_reader, late_writer):
            late_writer.write(b"late")
            assert await silent(late_reader)
            assert server.accepted.qsize() == 1
            assert proxy.set(both(Fault.NONE)) == ""
            assert await within(reader.readexactly(7)) == b"one two"
            assert await within(late_reader.readexactly(4)) == b"late"


@pytest.mark.parametrize("route", [0, 1])
@on_uvloop
async def test_a_cut_in_one_direction_lets_the_other_pass(route: int) -> None:
    """Route 0 begins in east: data it sends is held; route 1 begins in west: its answers are held."""
    server = Server()
    async with proxied(server) as proxy, connected(proxy, route) as client:
        target = await open_to(server, client[1])
        east, west = (client, target) if route == 0 else (target, client)
        proxy.set([Change("east", "west", fault=Fault.DROP)])
        east[1].write(b"from east")
        west[1].write(b"from west")
        assert await within(east[0].readexactly(9)) == b"from west"
        assert await silent(west[0])
        proxy.set([Change("east", "west", fault=Fault.NONE)])
        assert await within(west[0].readexactly(9)) == b"from east"


@on_uvloop
async def test_a_reset_ends_present_and_new_connections_both_ways() -> None:
    server = Server()
    async with proxied(server) as proxy, connected(proxy) as (reader, writer):
        target, _ = await open_to(server, writer)
        proxy.set(both(Fault.RESET))
        for each in (reader, target):
            with pytest.raises(ConnectionResetError):
                await within(each.read(1))
        await refused(proxy)
        assert [each.connections for each in proxy.directions()] == [0, 0]


async def refused(proxy: Proxy, route: int = 0) -> None:
    """A new connection is reset."""
    async with connected(proxy, route) as (reader, writer):
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await within(reader.read(1))


@on_uvloop
async def test_a_refusal_is_for_new_connections_until_it_is_healed() -> None:
    async with proxied(Server(echo)) as proxy, connected(proxy) as present:
        await ask(*present, b"open")
        proxy.set([Change("east", "west", fault=Fault.REFUSE)])
        await refused(proxy)
        assert (await ask(*present, b"still"))[0] == b"still"
        async with connected(proxy, 1) as other_way:
            assert (await ask(*other_way, b"welcome"))[0] == b"welcome"
        proxy.set(both(Fault.NONE))
        async with connected(proxy) as again:
            assert (await ask(*again, b"again"))[0] == b"again"


@on_uvloop
async def test_a_target_that_dies_ends_its_connections_and_one_that_returns_is_found() -> None:
    server = Server(echo)
    async with proxied(server, delay_s=0.01) as proxy:
        port = server.port
        async with connected(proxy) as (reader, writer):
            await ask(reader, writer, b"open")
            await server.stop()
            with contextlib.suppress(ConnectionResetError):
                assert await within(reader.read(1)) == b""
        await refused(proxy)
        await server.start(port)
        async with connected(proxy) as (reader, writer):
            assert (await ask(reader, writer, b"back"))[0] == b"back"
        await until(lambda: proxy.directions()[0].connections == 0)


@pytest.mark.parametrize("target", ["no-such-host.invalid:7001", f"{'x' * 70}.invalid:7001"])
@on_uvloop
async def test_a_target_whose_name_is_unknown_resets_the_client(target: str) -> None:
    proxy = Proxy([Route("127.0.0.1:0", "east", "west", target)])
    await proxy.start()
    try:
        await refused(proxy)
    finally:
        await proxy.stop()


@on_uvloop
async def test_a_target_is_resolved_by_name() -> None:
    server = Server(echo)
    port = await server.start()
    proxy = Proxy([Route("localhost:0", "east", "west", f"localhost:{port}")])
    await proxy.start()
    try:
        reader, writer = await asyncio.open_connection("localhost", proxy.port(0))
        assert (await ask(reader, writer, b"hello"))[0] == b"hello"
        writer.transport.abort()
    finally:
        await proxy.stop()
        await server.stop()


@on_uvloop
async def test_a_half_closed_connection_still_gets_its_answer() -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read(-1))).encode())
        writer.close()

    async with proxied(Server(count), delay_s=0.005) as proxy, connected(proxy) as (reader, writer):
        writer.write(bytes(300_000))
        writer.write_eof()
        assert await within(reader.read(-1)) == b"300000"


@on_uvloop
async def test_more_connections_than_allowed_are_reset() -> None:
    async with proxied(Server(echo), connections_max=2) as proxy, connected(proxy) as one, connected(proxy) as two:
        await ask(*one, b"1")
        await ask(*two, b"2")
        await refused(proxy)
        one[1].close()
        await until(lambda: len(proxy._open) == 1)  # both of its sockets are closed
        async with connected(proxy) as three:
            await ask(*three, b"3")


@on_uvloop
async def test_a_slow_receiver_slows_its_sender() -> None:
    server = Server()
    async with proxied(server) as proxy, connected(proxy) as (_, writer):
        target, target_writer = await open_to(server, writer)
        target_writer.transport.pause_reading()
        data = bytes(80 << 20)
        writer.write(data)
        await until(lambda: proxy.held > IN_FLIGHT_MAX)
        assert await silent(target)
        assert IN_FLIGHT_MAX < proxy.held < IN_FLIGHT_MAX + ONE_READ
        target_writer.transport.resume_reading()
        assert len(await within(target.readexactly(len(data)))) == len(data)


@on_uvloop
async def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        proxy = Proxy([Route("127.0.0.1:0", "east", "west", "a:1"), Route(address, "east", "west", "a:1")])
        with one_line(CannotListen, address):
            await proxy.start()


@on_uvloop
async def test_a_proxy_that_stops_ends_what_is_open() -> None:
    server = Server(echo)
    async with proxied(server) as proxy, connected(proxy) as (reader, writer):
        await ask(reader, writer, b"open")
        await within(proxy.stop())
        with pytest.raises(ConnectionResetError):
            await within(reader.read(1))
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(writer.get_extra_info("peername")[1]))
