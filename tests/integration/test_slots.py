"""Slot directories of a deployment's joiners: left behind, restored from an older copy, copied and started twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from pathlib import Path

from photon.lab.demo.deployment import Shape
from photon.supervision.ports import free_ports
from tests.integration.commands import drawn_seed, photon, soon
from tests.integration.rig import Rig

SECONDS = 6.0
SHAPE = Shape(datacentres=("east",), joiners=2, round_trip_s=None, unmatched_after_s=3.0)
SLOT = "east-1"
NAME = f"joiner {SLOT}"
VERIFIER = "verifier east"
OUTPUTS = ("joined", "filtered", "unmatched", "rejected")
WAIT_S = 60.0


class Slots:
    """Operations on one slot of a running deployment."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.place = rig.demo.places["east"]
        self.state = self.place.state / "slots" / SLOT
        self.file = rig.demo.deployment.file

    async def down(self, *others: str) -> None:
        for name in (NAME, *others):
            self.rig.supervisor.kill(name, hold=True)
        await self.rig._gone([NAME, *others])

    async def up(self, *others: str) -> None:
        for name in (NAME, *others):
            self.rig.supervisor.release(name)
        await self.rig.supervisor.ready(WAIT_S)

    def copy(self, to: Path) -> bool:
        """State and output, file by file, as a backup copies them; ``False`` means that a file was replaced
        meanwhile."""
        shutil.rmtree(to, ignore_errors=True)
        try:
            shutil.copytree(self.state, to / "state" / "slots" / SLOT)
            for kind in OUTPUTS:
                (to / "output" / kind).mkdir(parents=True)
                for path in (self.place.output / kind).glob(f"{SLOT}-*"):
                    shutil.copy(path, to / "output" / kind / path.name)
        except (shutil.Error, FileNotFoundError):
            return False
        return True

    def put_back(self, copied: Path) -> None:
        shutil.rmtree(self.state)
        shutil.copytree(copied / "state" / "slots" / SLOT, self.state)
        for kind in OUTPUTS:
            for path in (self.place.output / kind).glob(f"{SLOT}-*"):
                path.unlink()
            for path in (copied / "output" / kind).iterdir():
                shutil.copy(path, self.place.output / kind / path.name)

    def shown(self) -> int:
        """Bytes that readers may rely on."""
        with contextlib.suppress(OSError):
            found: int = sum(json.loads((self.state / "durable.json").read_bytes())["files"].values())
            return found
        return 0

    def serve(self, where: Path) -> str:
        """Serves the same slot from another directory; returns why it ended."""
        (port,) = free_ports(1)
        sets = [f'datacentre.east.state="{where}/state"', f'datacentre.east.output="{where}/output"']
        sets.append(f'datacentre.east.apart.joiner="127.0.0.1:{port}"')
        flags = [each for value in sets for each in ("--set", value)]
        ended = photon("serve", "joiner", SLOT, "--config", self.file, "--datacentre", "east", *flags)
        assert ended.code == 1, ended.err
        return ended.err


def adopting(directory: Path, after: str) -> Rig:
    rig = Rig(directory, drawn_seed(), seconds=SECONDS, shape=SHAPE)
    with open(rig.demo.deployment.file, "a") as file:
        file.write(f'\n[joiner]\nadopt_after = "{after}"\n')
    return rig


async def test_a_slot_that_nobody_is_at_is_redone_by_another_joiner(tmp_path: Path) -> None:
    async def drill(rig: Rig) -> None:
        slots = Slots(rig)
        mark, state = slots.state / "adopted.json", slots.state / "slot.json"
        await soon(slots.shown, WAIT_S, "the first records are shown")
        for _ in range(2):  # its owner comes back at any moment
            await slots.down()
            await rig.pause(0.0, 4.0)
            await slots.up()
        await slots.down()
        last = json.loads(state.read_bytes())["last"]
        await soon(lambda: mark.exists() and json.loads(mark.read_bytes())["incarnation"] > last, WAIT_S, "redone")
        listed = {each["slot"]: each for each in _list(slots.file)}
        assert listed[SLOT]["state"] == "down"
        assert listed["east-2"]["state"] == "at work"
        assert listed[SLOT]["disk"]["cleared_bytes"] == listed[SLOT]["disk"]["published_bytes"] > 0
        shown = photon("status", "slots", SLOT, "--config", slots.file, "-o", "json")
        assert (shown.code, sum(each["ids"] for each in json.loads(shown.out)["owned"])) == (0, 0), shown.err
        refused = photon("slot", "retire", SLOT, "--config", slots.file, "--yes")
        assert refused.code == 1
        assert "is readable, so slot east-1 has lost nothing" in refused.err
        await slots.up()

    await adopting(tmp_path, "500ms").run(drill)


def _list(file: Path) -> list[dict[str, object]]:
    done = photon("status", "slots", "--config", file, "-o", "json")
    assert done.code == 0, done.err
    found: list[dict[str, object]] = json.loads(done.out)["slots"]
    return found


async def test_copies_of_a_slot_are_refused_and_the_newest_goes_on(tmp_path: Path) -> None:
    async def drill(rig: Rig) -> None:
        slots = Slots(rig)
        older, newest = tmp_path / "older", tmp_path / "newest"
        await soon(slots.shown, WAIT_S, "the first records are shown")
        await soon(lambda: slots.copy(older), WAIT_S, "a whole copy")
        has = sum(path.stat().st_size for path in older.glob("output/*/*"))  # written, though maybe not shown yet
        await soon(lambda: slots.shown() > has, WAIT_S, "more is shown than the copy has")
        then = slots.shown()
        twice = await asyncio.to_thread(slots.serve, older)  # while the original is at work
        assert "it may be a copy" in twice or "older copy of slot east-1" in twice, twice
        await soon(lambda: slots.shown() > then, WAIT_S, "more is shown")
        await slots.down(VERIFIER)  # it would object to a half-restored directory
        assert slots.copy(newest)
        slots.put_back(older)
        for _ in range(2):  # a refused start changes nothing
            refused = await asyncio.to_thread(slots.serve, slots.place.state.parent)
            assert "this directory is an older copy of slot east-1" in refused, refused
        slots.put_back(newest)
        await slots.up(VERIFIER)

    await adopting(tmp_path, "0s").run(drill)
