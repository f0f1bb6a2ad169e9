"""The control of the proxy over gRPC, and its client."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from photon.config.serving import CannotListen
from photon.lab.wan import wan_pb2 as pb
from photon.lab.wan.client import WanClient, WanError
from photon.lab.wan.links import Change, Fault
from photon.lab.wan.proxy import CONNECTIONS_MAX, Proxy
from photon.lab.wan.service import connections_max, serve, start_server
from photon.lab.wan.wire import CONTROL
from photon.supervision.ports import free_ports
from photon.supervision.routes import Route
from tests.unit.lab.wan.peers import within
from tests.unit.refusals import one_line

PAIRS = [("east", "west"), ("east", "north"), ("west", "north")]
ROUTES = [Route("127.0.0.1:0", source, destination, "127.0.0.1:1") for source, destination in PAIRS]
ALL = sorted(PAIRS + [(b, a) for a, b in PAIRS])


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Address of a proxy's control."""
    proxy = Proxy(ROUTES, delay_s=0.015)
    await proxy.start()
    server = await start_server(proxy, "127.0.0.1:0")
    await server.serving()
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)
    await proxy.stop()


@pytest.fixture
async def client(address: str) -> AsyncIterator[WanClient]:
    client = WanClient(address)
    yield client
    await client.close()


async def faults(client: WanClient) -> dict[tuple[str, str], Fault]:
    """Directions that have one."""
    now = await client.directions()
    return {(each.source, each.destination): each.fault for each in now if each.fault is not Fault.NONE}


async def test_directions_at_the_start(client: WanClient) -> None:
    now = await client.directions()
    assert [(each.source, each.destination) for each in now] == ALL
    assert {(each.delay_s, each.fault, each.bytes, each.connections) for each in now} == {(0.015, Fault.NONE, 0, 0)}


async def test_delays_are_set_one_way_or_both(client: WanClient) -> None:
    await client.delay("east", "west", 0.05)
    await client.delay("east", "north", 0.08, both=False)
    delays = {(each.source, each.destination): each.delay_s for each in await client.directions()}
    changed = {("east", "west"): 0.05, ("west", "east"): 0.05, ("east", "north"): 0.08}
    assert delays == dict.fromkeys(ALL, 0.015) | changed


async def test_cuts_one_way_or_both_and_healing(client: WanClient) -> None:
    await client.cut("east", "west")
    await client.cut("north", "east", Fault.RESET, both=False)
    east_west = {("east", "west"): Fault.DROP, ("west", "east"): Fault.DROP}
    assert await faults(client) == east_west | {("north", "east"): Fault.RESET}
    await client.heal("north")
    assert await faults(client) == east_west
    await client.heal("east", "west")
    assert await faults(client) == {}


async def test_a_region_is_isolated_and_all_is_healed(client: WanClient) -> None:
    await client.isolate("north", Fault.REFUSE)
    assert await faults(client) == {pair: Fault.REFUSE for pair in ALL if "north" in pair}
    await client.isolate("north", Fault.DROP, both=False)
    dropped = {pair for pair, fault in (await faults(client)).items() if fault is Fault.DROP}
    assert dropped == {("north", "east"), ("north", "west")}
    await client.heal()
    assert await faults(client) == {}
    assert {each.delay_s for each in await client.directions()} == {0.015}


async def test_what_cannot_be_done_changes_nothing_and_is_said_in_one_line(client: WanClient) -> None:
    for changes, said in (
        ([Change("east", "west", fault=Fault.DROP), Change("east", "mars", fault=Fault.DROP)], "'mars'"),
        ([Change("east", "west", fault=Fault.DROP), Change("east", "west", delay_s=61.0)], "outside 0 to 60 s"),
    ):
        with one_line(WanError, said):
            await client.set(changes)
    for unknown in (client.isolate("mars"), client.heal("mars"), client.heal("east", "mars"), client.cut("a", "b")):
        with pytest.raises(WanError, match="no connections go"):
            await unknown
    assert await faults(client) == {}


async def test_a_fault_that_the_proxy_does_not_know_is_refused(address: str, client: WanClient) -> None:
    request = pb.SetRequest(changes=[pb.Change(source="east", destination="west", delay_ns=1)])
    request.changes.add().MergeFromString(b"\x0a\x04east\x12\x04west\x20\x09")  # fault 9
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await CONTROL.stub(channel).Set(request, timeout=60)
    assert reply.error == "fault 9 is unknown; this version knows NONE, DROP, RESET, REFUSE"
    assert {each.delay_s for each in await client.directions()} == {0.015}


async def test_a_proxy_that_is_not_there_is_said_in_one_line() -> None:
    client = WanClient(f"127.0.0.1:{free_ports(1)[0]}")
    try:
        for what in (client.directions(), client.heal(), client.cut("east", "west")):
            with one_line(WanError, "does not answer: UNAVAILABLE"):
                await what
    finally:
        await client.close()


async def test_the_process_is_healthy_until_it_is_stopped() -> None:
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    process = asyncio.create_task(serve(ROUTES, control="127.0.0.1:0", delay_s=0.0, stop=stop, ready=port.set_result))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await within(port)}") as channel:
        request = health_pb2.HealthCheckRequest(service="photon.v1.Wan")
        reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=60)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        stop.set()
        await within(process)


async def test_a_control_port_in_use_ends_the_process_with_one_line(address: str) -> None:
    with pytest.raises(CannotListen, match=address):
        await serve(ROUTES, control=address, delay_s=0.0, stop=asyncio.Event())


def test_connections_fit_into_the_limit_of_open_files() -> None:
    assert 1 <= connections_max(10) <= CONNECTIONS_MAX
