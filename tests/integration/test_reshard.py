"""The shards of a live deployment change, 2 -> 4 -> 2, while its joiners run: every click still comes out once.

In the middle of one change the leader of the registry's config group is killed by kill -9.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from typing import Any

import pytest

from photon.lab.demo.deployment import Shape
from tests.integration.commands import drawn_seed
from tests.integration.forked import Process, begin
from tests.integration.rig import Rig

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 1
ONE = Shape(datacentres=("east",), joiners=2, round_trip_s=None, unmatched_after_s=3.0, shards=2)
TWO = Shape(joiners=1, round_trip_s=0.01, unmatched_after_s=3.0, shards=2, tls=True)
COMMAND_S = 90.0
LEAD_S = 4.0
FEED_S = 40.0  # at most; long enough for all changes on a busy machine: one after the last event would show nothing
KILLS_S = 20.0  # at most, usually half of it: while three changes are made and come into force

LOOKS = {"status": ("status", "shards"), "verify": ("registry", "verify", "--shards")}


def started(rig: Rig, *arguments: str) -> Process:
    """``photon registry reshard``, or a read-only shards command, as a process."""
    words = LOOKS.get(arguments[0], ("registry", "reshard", *arguments))
    return begin(*words, "--config", rig.demo.deployment.file, "-o", "json", stdout=PIPE, stderr=PIPE, text=True)


async def said(process: Process, *, codes: tuple[int, ...] = (0,)) -> Any:
    """Its JSON. The exit code is one of those expected."""
    try:
        out, err = await asyncio.to_thread(process.communicate, COMMAND_S)
    except TimeoutExpired:
        process.kill()
        process.wait()
        raise
    assert process.returncode in codes, (process.returncode, out, err)
    return json.loads(out) if out else None


async def reshard(rig: Rig, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    return await said(started(rig, *arguments), codes=codes)


async def planned(rig: Rig, count: int) -> Any:
    """A plan; freshly started replicas refuse until they have compared their clocks."""
    deadline = time.monotonic() + COMMAND_S
    while True:
        process = started(rig, "--shards", str(count), "--lead", f"{LEAD_S}s", "--dry-run")
        found = await said(process, codes=(0, 1))
        if process.returncode == 0:
            return found
        assert time.monotonic() < deadline, "nothing can be planned"
        await asyncio.sleep(0.2)


async def change_to(rig: Rig, count: int, *, lead_s: float = LEAD_S) -> Any:
    """Applies a change, and waits until events follow it."""
    done = await reshard(rig, "--shards", str(count), "--lead", f"{lead_s}s")
    change = done["change"]
    assert (change["stage"], change["settled"], len(change["shards"])) == ("activated", True, count)
    print(f"change {change['number']} to shards {change['shards']} from {change['starts']} on")
    change["reached"] = await reached(rig, change["starts_ns"])
    return change


async def reached(rig: Rig, starts_ns: int) -> bool:
    """Waits until events of half a second after the start of a change arrive; true if any came."""
    assert starts_ns < time.time_ns() + 60_000_000_000, "the change is far ahead"
    while time.time_ns() < starts_ns + 500_000_000:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return not all(copy.done for copy in rig.feed.copies.values())


async def grow_and_shrink(rig: Rig) -> None:
    """2 -> 4 -> 2."""
    await rig.pause(0.5, 1.5)
    plan = await planned(rig, 4)
    assert (plan["change"]["stage"], plan["change"]["added"]) == ("planned", [3, 4])
    assert plan["change"]["starts_ns"] > plan["now_ns"]
    assert plan["why_not_sooner"]
    changes = [await change_to(rig, count) for count in (4, 2)]
    first, second = changes
    assert (first["number"], first["shards"]) == (plan["change"]["number"], [1, 2, 3, 4])
    assert second["leaving"] == [3, 4]
    await reshard(rig, "--shards", "2", "--dry-run", codes=(1,))
    used = {shard for change in changes if change["reached"] for shard in change["shards"]}
    assert used > {1, 2}, "the first change came after the last event"  # on a very slow machine the last ones do
    assert used <= await all_is_well(rig)


async def all_is_well(rig: Rig) -> set[int]:
    """At the end each readable event is in one shard, the one for its time. Returns the shards with ids."""
    rig.end_feed()
    while not all(copy.done for copy in rig.feed.copies.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await rig.settled()
    wanted = len(rig.generator.truth.joined) + len(rig.generator.truth.unmatched)
    deadline = time.monotonic() + COMMAND_S
    ids: dict[int, int] = {}
    while sum(ids.values()) != wanted:  # a replica may apply the last entries a moment later
        assert time.monotonic() < deadline, (ids, wanted)
        status = await reshard(rig, "status")
        ids = {each["shard"]: each["ids"] for each in status["shards"]}
    assert status["change"]["number"] == status["config"]
    verified = await reshard(rig, "verify")
    assert verified["ok"]
    assert [each["config"] for each in verified["replicas"].values()] == [status["config"]] * 3
    return {shard for shard, count in ids.items() if count}


async def kill_the_leader_within(rig: Rig) -> None:
    """The leader of the config group is gone while shards prepare; its successor completes the change."""
    await rig.pause(0.5, 1.5)
    leader = (await planned(rig, 3))["replica"]
    apply = started(rig, "--shards", "3", "--lead", "6s", "--tries", "6")
    assert apply.stderr is not None
    line = await asyncio.to_thread(apply.stderr.readline)
    assert "change 2 would be" in line
    await rig.pause(0.0, 0.3)
    rig.supervisor.kill(f"registry {leader}")
    change = (await said(apply))["change"]
    assert (change["stage"], change["shards"]) == ("activated", [1, 2, 3])
    assert await reached(rig, change["starts_ns"]), "the change came after the last event"
    await reshard(rig, "--abort", codes=(1,))
    await rig.supervisor.ready(COMMAND_S)
    await planned(rig, 2)
    await change_to(rig, 2)
    await all_is_well(rig)


async def whoever_is_killed(rig: Rig) -> None:
    """2 -> 3 -> 5 -> 2 while processes of every kind are killed; aborted changes are begun again."""
    killing = asyncio.create_task(rig.kill_each_kind(KILLS_S))
    try:
        for count in (3, 5, 2):
            starts_ns = await until_there_are(rig, count)
    finally:
        await killing
    await reached(rig, starts_ns)
    await rig.supervisor.ready(COMMAND_S)
    await all_is_well(rig)


async def until_there_are(rig: Rig, count: int) -> int:
    """Returns the time from which they are."""
    deadline = time.monotonic() + COMMAND_S
    while True:
        await reshard(rig, "--shards", str(count), "--lead", f"{LEAD_S}s", codes=(0, 1, 3))
        process = started(rig, "status")
        status = await said(process, codes=(0, 1, 3))
        if process.returncode == 0 and status["ranges"] and len(status["ranges"][-1]["shards"]) == count:
            return int(status["ranges"][-1]["from_ns"])
        assert time.monotonic() < deadline, status


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_shards_grow_and_shrink_whoever_is_killed(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=FEED_S, shape=ONE, prompt=True).run(whoever_is_killed)


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("shape", [pytest.param(ONE, marks=pytest.mark.full), TWO], ids=["one", "two"])
async def test_shards_grow_and_shrink_under_load(tmp_path: Path, shape: Shape, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=FEED_S, shape=shape, prompt=True).run(grow_and_shrink)


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_the_leader_is_killed_in_the_middle_of_a_change(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=FEED_S, shape=ONE, prompt=True).run(kill_the_leader_within)
