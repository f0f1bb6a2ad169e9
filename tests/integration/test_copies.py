"""Copies of output over real processes: a datacentre is deleted permanently; a keeper goes away and comes back."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

from photon.config.disk import RealDisk
from photon.config.loader import load
from photon.lab.demo.deployment import Shape
from photon.outputs import Cursor, OutputPlace, Reader, read_slot
from photon.supervision.deployment import Deployment
from photon.supervision.ports import free_ports
from tests.integration.commands import drawn_seed, photon, soon
from tests.integration.rig import SETTLE_S, Rig

SECONDS = 4.0
KINDS = ("joined", "unmatched")
REST_S = 240.0
POLL_S = 0.2


class CopyRig(Rig):
    """Two datacentres whose slots ship their output to each other, and a reader of both that keeps its cursors."""

    def __init__(self, directory: Path, seed: int, wait: str, seconds: float = SECONDS) -> None:
        super().__init__(
            directory, seed, seconds=seconds, shape=Shape(joiners=1, unmatched_after_s=3.0, round_trip_s=None)
        )
        self.file = directory / "photon.toml"
        text = self.file.read_text()
        for name, port in zip(self.demo.places, free_ports(len(self.demo.places)), strict=True):
            own = rf"(\[datacentre\.{name}\]\n(?:.*\n)*?apart = {{ )"
            text = re.sub(own, rf'\1copies = "127.0.0.1:{port}", ', text)
        self.file.write_text(f'{text}\n[output]\ncopies = 2\ncopies_wait = "{wait}"\n')
        old = self.demo.deployment
        self.demo.deployment = Deployment(self.file, load(self.file, environment={}), old.run, old.routes, old.tls)
        self.cursors = dict.fromkeys(self.demo.places, Cursor())
        self.has: Counter[str] = Counter()

    def output(self, name: str) -> OutputPlace:
        """As ``photon read --datacentre`` finds it."""
        place = self.demo.places[name]
        kept = tuple(each.state / "copies" / name for each in self.demo.places.values())
        return OutputPlace(place.output, place.state, kept)

    def read(self) -> None:
        """Reads newly published records, from each cursor's position."""
        for name, cursor in self.cursors.items():
            at = cursor
            for block in Reader(RealDisk(), self.output(name), KINDS, cursor=cursor).read():
                self.has.update(re.findall(r'^\{"event_id":"([^"]+)"', block.data.decode(), re.MULTILINE))
                at = at.moved(block.place, block.end())
            self.cursors[name] = at

    def published(self, name: str) -> int:
        """Bytes that readers of a datacentre can see."""
        return sum(file.length for slot in self.output(name).published(RealDisk(), KINDS) for file in slot.files)

    def written(self, name: str) -> int:
        """Bytes in the output's files, of kinds that are copied."""
        return sum(_size(file) for kind in KINDS for file in (self.demo.places[name].output / kind).iterdir())

    def kept(self, name: str, keeper: str) -> int:
        """Bytes of its output that the copy has and readers were shown."""
        state = self.demo.places[keeper].state / "copies" / name / f"{name}-1"
        return sum(file.length for file in read_slot(RealDisk(), state).files if file.kind in KINDS)

    async def everything_read(self) -> None:
        """The reader has every event with a verdict, each of them once."""
        expected = self.generator.truth.joined.keys() | self.generator.truth.unmatched
        async with asyncio.timeout(SETTLE_S):
            while self.has.keys() != expected:
                await asyncio.sleep(POLL_S)
                self.read()
        self.read()
        assert self.has == dict.fromkeys(expected, 1)

    async def retire(self, slot: str) -> None:
        command = ("slot", "retire", slot, "--config", str(self.file), "--yes")
        assert (await asyncio.to_thread(photon, *command, timeout=REST_S)).code == 0


def _size(file: Path) -> int:
    return len(gzip.decompress(file.read_bytes())) if file.suffix == ".gz" else file.stat().st_size


async def test_a_datacentre_is_deleted_for_ever(tmp_path: Path) -> None:
    rig = CopyRig(tmp_path, drawn_seed(), wait="2s")
    async with rig.started():
        feeding = asyncio.create_task(rig.feed.run())

        def some_read() -> bool:
            rig.read()
            return rig.published("east") > 0

        await soon(some_read, REST_S, "nothing of east was ever published")
        names = rig.supervisor.names(datacentre="east")
        rig.feed.copies["east"].held = True
        for name in names:
            rig.supervisor.kill(name, hold=True)
        await rig._gone(names)
        rig.read()
        place = rig.demo.places["east"]
        shutil.rmtree(place.state)
        shutil.rmtree(place.output)
        await rig.retire("east-1")
        sealed = read_slot(RealDisk(), rig.demo.places["west"].state / "copies" / "east" / "east-1")
        assert sealed.retired
        assert sealed.files
        rig.feed.copies["east"].held = False
        await feeding
        await rig.everything_read()  # west's own copy has no keeper any more: it continues without
        await rig.retire("east-1")  # done is done


async def test_the_published_length_falls_back_and_recovers(tmp_path: Path) -> None:
    rig = CopyRig(tmp_path, drawn_seed(), wait="3s")
    async with rig.started():
        rig.supervisor.kill("copies west", hold=True)  # it keeps east's
        await rig._gone(["copies west"])
        await rig.feed.run()
        await soon(lambda: rig.published("east") > 0, REST_S, "east shows nothing although nobody keeps its copy")
        before = rig.kept("east", "west")
        assert before < rig.published("east")
        rig.supervisor.release("copies west")
        await soon(lambda: rig.kept("east", "west") == rig.published("east") > before, REST_S, "it catches up")
        await rig.everything_read()


def _more(rig: CopyRig, before: int) -> bool:
    return rig.published("east") > before


async def test_a_stopped_joiner_hides_nothing(tmp_path: Path) -> None:
    """Three orderly stops under traffic: each time readers see all of its output, and its copy has it."""
    rig = CopyRig(tmp_path, drawn_seed(), wait="600s", seconds=12 * SECONDS)  # on a busy machine a stop takes many
    async with rig.started():
        feeding = asyncio.create_task(rig.feed.run())
        for _ in range(3):
            before = rig.published("east")
            await soon(partial(_more, rig, before), REST_S, "east publishes")
            rig.supervisor.hold("joiner east-1")
            await rig.supervisor.gone(["joiner east-1"])
            assert rig.published("east") == rig.written("east") == rig.kept("east", "west")
            rig.supervisor.release("joiner east-1")
        await feeding
        await rig.everything_read()
    last = (rig.demo.deployment.run / "logs" / "joiner-east-1.log").read_text()
    assert last.count("slot closed: everything accepted is decided and published") >= 3
