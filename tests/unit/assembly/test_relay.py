"""The place from which the output of an upstream join is read, and the keepers of its copies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from photon.assembly.copies import keeper
from photon.assembly.relay import Upstream, place_of, serve_relay
from photon.assembly.room import Room
from photon.config.clock import NS_PER_S as S
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.outputs.log.copier import whole_ns
from photon.outputs.relay import Relay
from photon.supervision.ports import free_ports
from tests.unit.outputs.helpers import WrittenSlot, lines

EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "chain.toml"
WEST = """
[datacentre.west]
join = "clicks"
primary = "west/queries"
foreign = "west/clicks"
output = "west/out"
state = "west/state"
address = "127.0.0.1:7711"
"""


def settings(*flags: str, more: str = "", base: Path) -> Settings:
    file = base / "photon.toml"
    file.write_text(EXAMPLE.read_text() + more)
    return load(file, environment={}, flags=flags)


def both(base: Path) -> Settings:
    return settings("output.copies=2", more=WEST, base=base)


def test_a_copy_is_kept_where_the_same_is_joined_and_not_beside_it(tmp_path: Path) -> None:
    chain = both(tmp_path)
    assert [keeper(chain, name) for name in ("east", "west")] == ["west", "east"]
    assert keeper(chain, "east-purchases") in ("east", "west")


def test_an_output_is_read_where_it_is_written_else_in_the_copy_that_is_kept_here(tmp_path: Path) -> None:
    chain = both(tmp_path)
    with pytest.raises(UsageError, match=r"west/state: no such directory, so neither the output of west nor a copy"):
        place_of(chain, tmp_path, "east-purchases", "primary", "west")
    (tmp_path / "clicks" / "state").mkdir(parents=True)  # east's, which keeps west's copies
    copy = place_of(chain, tmp_path, "east-purchases", "primary", "west")
    assert (copy.live, copy.copies) == (True, (tmp_path / "clicks" / "state" / "copies" / "west",))
    (tmp_path / "west" / "state").mkdir(parents=True)
    place = place_of(chain, tmp_path, "east-purchases", "primary", "west")
    assert (place.live, place.output) == (False, tmp_path / "west" / "out")


class Hurried(SystemClock):
    """Treats every wait as over."""

    def monotonic(self) -> float:
        return super().monotonic() * 1e6


async def test_a_relay_copies_what_there_is_and_says_up_to_when(tmp_path: Path) -> None:
    [port] = free_ports(1)
    chain = settings(f'datacentre.east-purchases.apart.relay="127.0.0.1:{port}"', base=tmp_path)
    slot = WrittenSlot(tmp_path / "written", "east-1")
    slot.append(1, lines(0, 9))
    (tmp_path / "clicks").mkdir()
    slot.place.output.rename(tmp_path / "clicks" / "output")
    slot.place.state.rename(tmp_path / "clicks" / "state")
    stop, up = asyncio.Event(), asyncio.Event()
    begun = SystemClock().now_ns()
    room = Room(chain, tmp_path, stop, "east-purchases", clock=Hurried(), up=up.set)
    serving = asyncio.create_task(serve_relay(room))
    logs = tmp_path / "purchases" / "state" / "upstream" / "primary"
    async with asyncio.timeout(30):
        while whole_ns(logs) < begun:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert up.is_set()
    assert (logs / "east-1-000001.jsonl").read_bytes() == lines(0, 9)
    stop.set()
    await serving


async def test_what_cannot_be_relayed_is_said_in_one_line(tmp_path: Path) -> None:
    chain = settings(base=tmp_path)
    with pytest.raises(UsageError, match="east: its join reads no other join's output"):
        await serve_relay(Room(chain, tmp_path, asyncio.Event(), "east"))
    with pytest.raises(
        UsageError, match=r"clicks/state: no such directory.*set their directory as datacentre\.east-pu"
    ):
        await serve_relay(Room(chain, tmp_path, asyncio.Event(), "east-purchases", clock=Hurried()))


async def test_slots_of_the_output_that_are_elsewhere_are_named_and_nothing_is_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slot = WrittenSlot(tmp_path / "written", "east-1")
    slot.append(1, lines(0, 9))
    upstream = Upstream("primary", "east", Relay(RealDisk(), slot.place, tmp_path / "logs", "east"), slot.place)
    assert upstream.shown_by(5 * S) == upstream.shown_by(5 * S + 1) == 5 * S
    upstream.slots = frozenset({"east-1", "east-2"})
    assert upstream.shown_by(9 * S) == upstream.shown_by(11 * S) == 5 * S
    assert capsys.readouterr().out.count("east-2") <= 1
    assert upstream.said == "east-2"
    upstream.slots = frozenset({"east-1"})
    assert upstream.shown_by(13 * S) == 13 * S
    upstream.relay.close()
