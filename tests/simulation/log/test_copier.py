"""Seeded schedules of copiers: killed at any step, their power cut, their syncs failed, over and over.

An output and a topic grow meanwhile, and are copied into one directory. Rules of ``photon.outputs.log.copier`` have
ablations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from photon.outputs import OutputPlace, topic_relay
from photon.outputs.log.copier import Block, Copier, RelayedLogLost
from photon.outputs.log.writer import LogWriter
from photon.outputs.published import read_slot
from photon.outputs.relay import KIND, Relay
from photon.outputs.topic_relay import TopicRelay
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each
from tests.simulation.world.violation import Violation, of_seed
from tests.unit.outputs.test_topic_relay import FILE_OFFSETS, FakeTopic, expected

LIVES = 8
PLACE = OutputPlace(Path("/out"), Path("/state"))
STATE = PLACE.state / "slots" / "s"
SEEDS_OF_AN_ABLATION = 400


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_relay, "FILE_OFFSETS", FILE_OFFSETS)


class Schedule:
    def __init__(self, seed: int, directory: Path) -> None:
        self.random, self.directory = Random(seed), directory
        self.disk = FaultyDisk(self.random)
        self.topic = FakeTopic({0: [], 1: []}, at_once=self.random.randint(1, 5))

    def run(self) -> None:
        for _ in range(LIVES):
            self._grow()
            for open_ in (self._relay, self._topic_relay):
                if self.random.random() < 0.3:
                    self.disk.fail_sync_after(self.random.randint(1, 4))
                self.disk.crash_after(self.random.randrange(40))
                with suppress(PowerOff, OSError):
                    self._life(open_)
                self.disk.kill()
            if self.random.random() < 0.4:
                self.disk.power_cut()
        for copied in (True, False):
            for open_ in (self._relay, self._topic_relay):
                with closing(open_()) as copier:
                    copier.pass_on()
                    if copier.bytes and not copied:
                        raise Violation(f"{copier.bytes} bytes of {copier.name} are copied once more")
        if self._copies() != self._published():
            raise Violation(f"published {self._published()}, copied {self._copies()}")

    def _relay(self) -> Copier:
        return Relay(self.disk, PLACE, self.directory, "east")

    def _topic_relay(self) -> Copier:
        return TopicRelay(self.disk, self.topic, self.directory)

    def _life(self, open_: Callable[[], Copier]) -> None:
        with closing(open_()) as copier:
            for _ in range(self.random.randrange(4)):
                for _ in copier.step():
                    if self.random.random() < 0.2:
                        break
                if self.random.random() < 0.5:
                    copier.save()
            if self.random.random() < 0.5:
                copier.pass_on()

    def _grow(self) -> None:
        self.disk.crash_after(None)
        log = LogWriter(self.disk, PLACE.output, STATE, "s", (KIND,), roll_bytes=self.random.choice((40, 1 << 20)))
        log.load()
        log.recover(KIND)
        for publishes in (True, False):
            for _ in range(self.random.randrange(4)):
                log.append(KIND, b"%d\n" % self.random.getrandbits(60))
            if publishes:
                log.publish()
        for number, messages in self.topic.partitions.items():
            for _ in range(self.random.randrange(8)):
                offset = self.topic.end[number] + self.random.randrange(4)
                messages.append((offset, self.random.choice((None, b"", b"%d" % self.random.getrandbits(40)))))
                self.topic.end[number] = offset + 1

    def _published(self) -> dict[str, bytes]:
        files = read_slot(self.disk, STATE).files
        read = {Path(file.name).name: self.disk.read(PLACE.output / file.name, 0, file.length) for file in files}
        return {name: data for name, data in (read | expected(self.topic)).items() if data}

    def _copies(self) -> dict[str, bytes]:
        names = (name for name in self.disk.names(self.directory) if not name.startswith("."))
        return {name: data for name in names if (data := self.disk.read(self.directory / name))}


def run_seed(seed: int) -> None:
    with of_seed(seed), TemporaryDirectory() as directory:
        try:
            Schedule(seed, Path(directory)).run()
        except RelayedLogLost as refused:
            raise Violation(f"refused: {refused}") from None


@pytest.mark.seeded
def test_each_byte_is_copied_once_and_stays() -> None:
    run_each(run_seed, lambda seed: [], 10)


def _says_before_it_syncs(copier: Copier, path: Path, file: object) -> None:
    """Rule 2: a place is reported before its bytes are durable."""


def _believes_what_is_there(copier: Copier, block: Block) -> None:
    """Rule 3: bytes beyond the saved place are not compared."""
    _, file = copier._log(block)
    file.write(block.data[max(file.size - block.start, 0) :])


def _forgets_the_last_file(copier: Copier, block: Block) -> object:
    """Rule 2: the bytes of a file that has a successor are not durable."""
    newest = copier._logs.get(block.log)
    if newest is not None and newest[0].name != block.name:
        copier._logs.pop(block.log)[1].close()
    return LOG(copier, block)


def _believes_the_cache(disk: FaultyDisk, path: Path, offset: int) -> None:
    """Rule 2: data that an earlier process could not sync is taken to be durable."""


LOG = Copier._log
ABLATIONS = [
    (Copier, "_sync", _says_before_it_syncs),
    (Copier, "_append", _believes_what_is_there),
    (Copier, "_log", _forgets_the_last_file),
    (FaultyDisk, "rewrite", _believes_the_cache),
]


@pytest.mark.parametrize(("of", "method", "without"), ABLATIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_simulator_notices(
    monkeypatch: pytest.MonkeyPatch, of: type, method: str, without: Callable[..., object]
) -> None:
    monkeypatch.setattr(of, method, without)
    notice(f"copier: {without.__name__}", range(SEEDS_OF_AN_ABLATION), run_seed, "refused|published|once more")
