"""Recovery by token over real processes: a joiner dies, its disk loses unsynced data and a batch of its log.

The ids of that batch are registered and are in no output. The start is refused until the operator accepts the damage;
then the slot redoes the rest and says so, and the verifier gives the lost ids up: they are joined again, once each.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.config.disk import RealDisk
from photon.config.loader import load
from photon.joiner.rows import Rows
from photon.joiner.slot.redo_log import FRAME_MARK, SEGMENT_HEAD_BYTES, decode_frame, segments_in
from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Supervisor
from tests.integration.commands import Result, photon, running, soon
from tests.integration.supervised import supervised
from tests.integration.test_skip import configuration, joined, write

FAILED = 1
BATCH = 20
ATTEMPTS = 20
JOINER = "joiner east-1"


class Slot:
    """The files of one slot of a dead joiner."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "east/state/slots/east-1"
        self.output = directory / "east/output"
        self.redo = self.state / "redo"

    @property
    def redone(self) -> int:
        """The last incarnation that has been redone."""
        with suppress(FileNotFoundError):
            return int(json.loads((self.state / "redone.json").read_bytes())["upto"])
        return 0

    def durable(self) -> dict[str, int]:
        found = json.loads((self.state / "durable.json").read_bytes())
        lengths: dict[str, int] = found.get("durable") or found["files"]
        return lengths

    def unsynced(self) -> list[Path]:
        """Output files longer than their durable part."""
        with suppress(FileNotFoundError, ValueError):
            durable = self.durable()
            files = sorted(self.output.glob("joined/east-1-*.jsonl"))
            return [each for each in files if each.stat().st_size > durable.get(f"joined/{each.name}", 0)]
        return []

    def weak_frame(self) -> Weak | None:
        """A frame whose lines were written without sync, and that a later frame knows as synced."""
        with suppress(FileNotFoundError):
            durable = self.durable()
            tails = {path: durable.get(f"joined/{path.name}", 0) for path in self.unsynced()}
            gone = {line for path, at in tails.items() for line in path.read_bytes()[at:].splitlines()}
            for _, segment in segments_in(RealDisk(), self.redo):
                data = segment.read_bytes()
                for at, lines in _frames(data):
                    later = data.find(FRAME_MARK, at + 1)
                    if gone & lines and any(synced > at for synced in _synced(data, later)):
                        return Weak(segment, (at + later) // 2, gone & lines, tails)
        return None


@dataclass(frozen=True)
class Weak:
    """Losses of a power cut together with rot."""

    segment: Path
    middle: int  # byte in the middle of the frame
    lines: set[bytes]
    tails: dict[Path, int]  # output file -> its durable length

    def lose(self) -> set[str]:
        """Unsynced data is gone, as after a power cut, and the frame rots. Returns the ids that are now in no
        output."""
        for path, end in self.tails.items():
            with path.open("r+b") as file:
                file.truncate(end)
        with self.segment.open("r+b") as log:
            log.seek(self.middle)
            rotten = bytes(byte ^ 0xFF for byte in log.read(8))
            log.seek(self.middle)
            log.write(rotten)
        return {json.loads(line)["event_id"] for line in self.lines}


def _frames(data: bytes) -> list[tuple[int, set[bytes]]]:
    """Offset and lines of each frame."""
    found, at = [], SEGMENT_HEAD_BYTES
    while (decoded := decode_frame(data, at)) is not None:
        frame, end, _ = decoded
        rows = Rows.decode(np.asarray(frame.tokens), b"".join(frame.body))
        found.append((at, {line.rstrip(b"\n") for line in rows.lines}))
        at = end
    return found


def _synced(data: bytes, at: int) -> list[int]:
    """Synced lengths known to each frame from ``at`` on."""
    found = []
    while at >= 0 and (decoded := decode_frame(data, at)) is not None:
        _, at, synced = decoded
        found.append(synced)
    return found


class Feed:
    """Writes events until it is stopped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stop = asyncio.Event()
        self.written = 0

    async def run(self) -> None:
        while not self._stop.is_set():
            write(self._directory, self.written, BATCH)
            self.written += BATCH
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 0.05)

    def stop(self) -> None:
        self._stop.set()


async def _lose_a_batch(supervisor: Supervisor, slot: Slot) -> tuple[Path, set[str]]:
    """kill -9 of the joiner while output is written and not synced; repeated until that moment is hit."""
    for _ in range(ATTEMPTS):
        await soon(lambda: slot.weak_frame() is not None, 60, "east-1 writes")
        supervisor.kill(JOINER, hold=True)
        await supervisor.gone([JOINER])
        if (weak := slot.weak_frame()) is not None:
            return weak.segment, weak.lose()
        supervisor.release(JOINER)
    raise AssertionError(f"{ATTEMPTS} kills, and all output was synced each time")


async def test_a_rotten_batch_is_given_up_and_joined_again(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    slot = Slot(tmp_path)
    serve = ("serve", "joiner", "--config", str(file), "--datacentre", "east")
    deployment, feed = Deployment(file, load(file, environment={}), tmp_path / "run"), Feed(tmp_path)
    write(tmp_path, 0, BATCH)
    feed.written = BATCH
    async with supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        await soon(lambda: len(joined(tmp_path)) >= BATCH, 60, "it works")
        feeding = asyncio.create_task(feed.run())
        try:
            segment, lost = await _lose_a_batch(supervisor, slot)
        finally:
            feed.stop()
            await feeding
        redone = slot.redone

        refused: Result = await asyncio.to_thread(photon, *serve)
        said = refused.err.splitlines()[-1]
        assert refused.code == FAILED
        assert f"{segment}: damaged redo log at byte" in said
        assert "--accept-damaged-log" in said

        log = tmp_path / "accepted.log"
        with running(*serve, "--accept-damaged-log", log=log) as accepting:
            await soon(lambda: slot.redone > redone, 60, "the slot is redone")
            accepting.terminate()
            assert await asyncio.to_thread(accepting.wait, 60) == 0
        assert "a part of the redo log was lost" in log.read_text()
        assert [each.name for each in slot.redo.glob("damaged-*")] == [f"damaged-{segment.stem}-0.bin"]
        supervisor.release(JOINER)

        await soon(lambda: lost <= set(joined(tmp_path)), 60, "the lost ids are joined again")
        await soon(lambda: len(joined(tmp_path)) >= feed.written, 60, "all is joined")
    print(f"{len(lost)} ids were lost of {feed.written}")
    seen = Counter(joined(tmp_path))
    assert {each: count for each, count in seen.items() if count != 1} == {}
    assert sorted(seen) == sorted(f"c{n}" for n in range(feed.written))
