"""One connection through the proxy, in simulated time."""

import random

import pytest

from photon.lab.wan.links import Fault, Link
from photon.lab.wan.tunnel import (
    HELD_MAX,
    IN_FLIGHT_MAX,
    STEP_BYTES_MAX,
    Abort,
    Action,
    Close,
    Connect,
    Finish,
    Side,
    Tunnel,
    Write,
)

CLIENT, TARGET = Side.CLIENT, Side.TARGET
D = 0.05  # one way


class World:
    """A tunnel, its two links, and its output with times."""

    def __init__(self, forth_s: float = D, back_s: float = D) -> None:
        self.forth = Link("east", "west", forth_s)
        self.back = Link("west", "east", back_s)
        self.now = 100.0
        self.start = self.now
        self.tunnel = Tunnel(self.forth, self.back, self.now)
        self.said: list[tuple[float, Action]] = []

    def step(self) -> None:
        while actions := self.tunnel.step(self.now):
            self.said += [(round(self.now - self.start, 6), action) for action in actions]

    def run(self, until: float) -> "World":
        """Wakes the tunnel whenever it asks for it, up to a time after the start."""
        self.step()
        while (wake := self.tunnel.wake_at()) is not None and wake <= self.start + until:
            self.now = max(self.now, wake)
            self.step()
        self.now = max(self.now, self.start + until)
        self.step()
        return self

    def opened(self) -> "World":
        self.run(1.0)
        self.tunnel.connected()
        self.said.clear()
        return self

    def received(self, side: Side) -> bytes:
        writes = (each for _, each in self.said if isinstance(each, Write) and each.side is side)
        return b"".join(chunk for each in writes for chunk in each.chunks)

    def times(self, kind: type) -> list[float]:
        return [at for at, each in self.said if isinstance(each, kind)]


def test_opening_costs_a_round_trip_before_the_first_byte_travels() -> None:
    world = World(0.03, 0.07)
    world.tunnel.data(CLIENT, b"hello", world.now)
    world.run(1.0)
    assert world.said == [(0.13, Connect())]  # SYN 30 ms, SYN-ACK 70 ms, ACK and first bytes 30 ms
    world.tunnel.connected()
    world.step()
    assert world.received(TARGET) == b"hello"


def test_what_the_target_says_first_comes_after_two_round_trips() -> None:
    world = World()
    world.run(3 * D)
    world.tunnel.connected()
    world.tunnel.data(TARGET, b"220 ready", world.now)
    world.run(1.0)
    assert world.times(Write) == [pytest.approx(4 * D)]


def test_without_delay_all_happens_at_once() -> None:
    world = World(0.0, 0.0)
    world.tunnel.data(CLIENT, b"hello", world.now)
    world.step()
    world.tunnel.connected()
    world.step()
    assert [each for _, each in world.said] == [Connect(), Write(TARGET, [b"hello"])]


def test_each_direction_has_its_own_delay() -> None:
    world = World(0.03, 0.2).opened()
    world.tunnel.data(CLIENT, b"ask", world.now)
    world.tunnel.data(TARGET, b"tell", world.now)
    world.run(2.0)
    assert world.said == [(1.03, Write(TARGET, [b"ask"])), (1.2, Write(CLIENT, [b"tell"]))]
    assert (world.forth.delivered, world.back.delivered) == (3, 4)


def test_a_half_closed_connection_goes_on_in_the_other_direction() -> None:
    world = World().opened()
    world.tunnel.data(CLIENT, b"ask", world.now)
    world.tunnel.finished(CLIENT, world.now)
    world.run(1.5)
    assert [each for _, each in world.said] == [Write(TARGET, [b"ask"]), Finish(TARGET)]
    assert not world.tunnel.done
    world.tunnel.data(TARGET, b"tell", world.now)
    world.tunnel.finished(TARGET, world.now)
    world.run(2.0)
    ends = [Write(CLIENT, [b"tell"]), Finish(CLIENT), Close(CLIENT), Close(TARGET)]
    assert [each for _, each in world.said[2:]] == ends
    assert (world.tunnel.done, world.forth.connections) == (True, 0)


@pytest.mark.parametrize("side", list(Side))
def test_a_side_that_breaks_is_told_to_the_other_after_the_delay(side: Side) -> None:
    world = World().opened()
    world.tunnel.data(side, b"last words", world.now)
    world.tunnel.lost(side, world.now)
    world.run(2.0)
    assert world.said == [(1.0 + D, Write(side.other, [b"last words"])), (1.0 + D, Abort(side.other))]
    assert world.tunnel.done


def test_a_target_that_cannot_be_had_resets_the_client_after_the_delay() -> None:
    world = World()
    world.run(3 * D)
    world.tunnel.lost(TARGET, world.now)
    world.run(1.0)
    assert world.said[1:] == [(pytest.approx(4 * D), Abort(CLIENT))]
    assert world.tunnel.done


def test_a_client_that_leaves_while_the_target_is_connected_to() -> None:
    world = World()
    world.run(3 * D)
    world.tunnel.lost(CLIENT, world.now)
    world.tunnel.connected()
    world.run(1.0)
    assert [each for _, each in world.said] == [Connect(), Abort(TARGET)]
    assert world.tunnel.done


def test_a_client_that_leaves_before_the_target_is_asked_leaves_nothing() -> None:
    world = World()
    world.run(D)
    world.tunnel.lost(CLIENT, world.now)
    assert (world.tunnel.done, world.forth.connections, world.tunnel.wake_at()) == (True, 0, None)


@pytest.mark.parametrize("side", list(Side))
def test_a_silent_cut_holds_one_direction_and_lets_the_other_pass(side: Side) -> None:
    world = World().opened()
    cut = world.forth if side is CLIENT else world.back
    world.tunnel.data(side, b"in flight ", world.now)
    cut.fault = Fault.DROP
    world.tunnel.data(side, b"and later", world.now)
    world.tunnel.data(side.other, b"the other way", world.now)
    world.run(60.0)
    assert world.received(side) == b"the other way"
    assert world.received(side.other) == b""
    cut.fault = Fault.NONE
    world.step()
    assert world.received(side.other) == b"in flight and later"
    assert not world.tunnel.done


def test_nobody_is_told_through_a_silent_cut() -> None:
    world = World().opened()
    world.forth.fault = world.back.fault = Fault.DROP
    world.tunnel.finished(CLIENT, world.now)
    world.run(60.0)
    world.tunnel.lost(CLIENT, world.now)
    world.run(120.0)
    assert world.said == []
    assert (world.tunnel.done, world.forth.connections) == (False, 1)
    world.forth.fault = world.back.fault = Fault.NONE
    world.step()
    assert [each for _, each in world.said] == [Abort(TARGET)]
    assert (world.tunnel.done, world.forth.connections) == (True, 0)


def test_a_cut_connection_that_both_sides_left_is_forgotten() -> None:
    world = World().opened()
    world.forth.fault = world.back.fault = Fault.DROP
    world.tunnel.data(CLIENT, b"lost", world.now)
    world.tunnel.lost(CLIENT, world.now)
    world.tunnel.lost(TARGET, world.now)
    assert (world.tunnel.done, world.forth.connections, world.forth.delivered) == (True, 0, 0)


@pytest.mark.parametrize("cut", ["forth", "back"])
def test_a_connection_begun_in_a_cut_reaches_the_target_once_it_is_healed(cut: str) -> None:
    world = World()
    getattr(world, cut).fault = Fault.DROP
    world.tunnel.data(CLIENT, b"hello", world.now)
    world.run(60.0)
    assert world.said == []
    getattr(world, cut).fault = Fault.NONE
    world.run(70.0)
    left = 2 * D if cut == "forth" else D  # legs of the handshake after the one that was held
    assert world.said == [(pytest.approx(60.0 + left), Connect())]


@pytest.mark.parametrize("cut", ["forth", "back"])
def test_a_client_that_gives_up_connecting_through_a_cut_is_forgotten(cut: str) -> None:
    world = World()
    getattr(world, cut).fault = Fault.DROP
    world.run(1.0)
    world.tunnel.finished(CLIENT, world.now)
    world.step()
    assert [each for _, each in world.said] == [Abort(CLIENT)]
    assert (world.tunnel.done, world.forth.connections) == (True, 0)


def test_a_client_that_only_half_closes_while_it_connects_is_served() -> None:
    world = World()
    world.tunnel.data(CLIENT, b"ask", world.now)
    world.tunnel.finished(CLIENT, world.now)
    world.run(1.0)
    world.tunnel.connected()
    world.step()
    assert [each for _, each in world.said] == [Connect(), Write(TARGET, [b"ask"]), Finish(TARGET)]


def test_a_reset_ends_connections_begun_in_its_source_only() -> None:
    ours, theirs = World().opened(), World().opened()
    ours.forth.fault = Fault.RESET
    theirs.back.fault = Fault.RESET
    for world in (ours, theirs):
        world.tunnel.data(CLIENT, b"x", world.now)
        world.run(2.0)
    assert [each for _, each in ours.said] == [Abort(CLIENT), Abort(TARGET)]
    assert ours.tunnel.done
    assert theirs.received(TARGET) == b"x"


def test_a_refusal_leaves_present_connections_alone() -> None:
    world = World().opened()
    world.forth.fault = Fault.REFUSE
    world.tunnel.data(CLIENT, b"x", world.now)
    world.run(2.0)
    assert world.received(TARGET) == b"x"


def test_a_sender_is_not_read_from_while_too_much_is_on_its_way() -> None:
    world = World().opened()
    chunk = bytes(1 << 20)
    sent = 0
    while world.tunnel.reads(CLIENT):
        world.tunnel.data(CLIENT, chunk, world.now)
        sent += len(chunk)
    assert IN_FLIGHT_MAX - len(chunk) <= sent <= IN_FLIGHT_MAX + len(chunk)
    assert world.tunnel.reads(TARGET)
    world.run(1.0 + D)
    assert world.tunnel.reads(CLIENT)
    assert len(world.received(TARGET)) == sent
    assert all(sum(map(len, each.chunks)) <= STEP_BYTES_MAX for _, each in world.said if isinstance(each, Write))


def test_a_cut_and_a_client_that_connects_hold_less() -> None:
    cut, connecting = World().opened(), World()
    cut.forth.fault = Fault.DROP
    for world in (cut, connecting):
        for _ in range(HELD_MAX // 65536 + 1):
            world.tunnel.data(CLIENT, bytes(65536), world.now)
        assert not world.tunnel.reads(CLIENT)
        assert world.tunnel.reads(TARGET)


def test_a_receiver_that_is_full_gets_nothing_more_for_now() -> None:
    world = World().opened()
    world.tunnel.blocked(TARGET, True)
    world.tunnel.data(CLIENT, b"wait", world.now)
    world.run(5.0)
    assert (world.said, world.tunnel.wake_at()) == ([], None)
    world.tunnel.blocked(TARGET, False)
    world.step()
    assert world.received(TARGET) == b"wait"


def test_a_receiver_that_breaks_while_it_is_full_is_told_on() -> None:
    world = World().opened()
    world.tunnel.blocked(TARGET, True)
    world.tunnel.data(CLIENT, b"never read", world.now)
    world.tunnel.lost(TARGET, world.now)
    world.run(5.0)
    assert [each for _, each in world.said] == [Abort(CLIENT)]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_side_gets_a_prefix_and_all_of_it_once_healed(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng.random() / 5, rng.random() / 5)
    sent: dict[Side, bytearray] = {CLIENT: bytearray(), TARGET: bytearray()}
    connected = False
    for _ in range(400):
        world.run(world.now - world.start + rng.random() / 20)
        if not connected and world.times(Connect):
            world.tunnel.connected()
            connected = True
        side, link = rng.choice(list(Side)), rng.choice((world.forth, world.back))
        match rng.randrange(8):
            case 0 | 1 | 2 | 3 if (side is CLIENT or connected) and world.tunnel.reads(side):
                data = rng.randbytes(rng.randrange(1, 20_000))
                world.tunnel.data(side, data, world.now)
                sent[side] += data
            case 4:
                link.fault = rng.choice((Fault.DROP, Fault.NONE, Fault.NONE, Fault.REFUSE))
            case 5:
                link.delay_s = rng.random() / 5
            case 6 if connected:
                world.tunnel.blocked(side, rng.random() < 0.5)
        for each in Side:
            assert sent[each].startswith(world.received(each.other))
    world.forth.fault = world.back.fault = Fault.NONE
    for side in Side:
        world.tunnel.blocked(side, False)
    world.run(world.now - world.start + 1.0)
    if not connected:
        world.tunnel.connected()
    for side in Side:
        world.tunnel.finished(side, world.now)
    world.run(world.now - world.start + 1.0)
    assert world.tunnel.done
    assert {side: world.received(side.other) for side in Side} == {s: bytes(b) for s, b in sent.items()}
    assert (world.forth.delivered, world.back.delivered) == (len(sent[CLIENT]), len(sent[TARGET]))
    assert world.forth.connections == 0
