"""Seeded schedules of all writers of a published log (``contract``).

Each rule of ``photon.outputs.log.writer`` has an ablation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pytest

from photon.objects import directory
from photon.outputs.log.writer import LogWriter
from photon.outputs.mirrored import MirroredFile
from photon.sinks.objects import ObjectSink
from tests.simulation.log.contract import InABucket, Numbered, OfACopy, OfASlot, Replaced, Schedule, Writer
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import run_each
from tests.simulation.world.violation import of_seed

SEEDS_OF_AN_ABLATION = 400


class ShowsWhatIsNotSynced(LogWriter):
    """Rule 1: publishes a length whose bytes are not durable."""

    def sync(self) -> bool:
        for file in self._files.values():
            file.sync = lambda: None
        return super().sync()


class ForgetsTheName(LogWriter):
    """Rule 1: the bytes of a new file are durable, but not its name."""

    def sync(self) -> bool:
        for kind in self._unsynced:
            self.lengths.setdefault(self._current(kind), 0)
        return super().sync()


class RollsBeforeItSyncs(LogWriter):
    """Rule 3: a file has a successor before it is durable."""

    def sync(self) -> bool:
        for kind in [kind for kind in self._unsynced if self._files[kind].size >= self._roll_bytes]:
            self._unsynced.discard(kind)
            self.lengths[self._current(kind)] = self._files[kind].size
            self.go_on(kind, self.current[kind] + 1)
        return super().sync() or bool(self.lengths)


class CutsNothing(LogWriter):
    """Rule 4: a start appends to what it finds."""

    def recover(self, kind: str, again: Collection[bytes] | None = None) -> bool:
        return True


class CutsWhatOthersWrote(LogWriter):
    """Rule 4: a start cuts lines that nobody will rewrite."""

    def _is_again(self, *_: object) -> bool:
        return True


class BelievesTheCache(LogWriter):
    """Rule 5: forgets rows because of a number that a power cut takes back."""

    def load(self) -> None:
        disk: FaultyDisk = self.disk  # type: ignore[assignment]
        rewrite, disk.rewrite = disk.rewrite, lambda path, offset: None  # type: ignore[method-assign]
        sync, disk.sync_dir = disk.sync_dir, lambda path: None  # type: ignore[method-assign]
        try:
            super().load()
        finally:
            disk.rewrite, disk.sync_dir = rewrite, sync  # type: ignore[method-assign]


class NamedFirst(ObjectSink):
    """Rule 1, of a bucket: the manifest names objects that do not exist yet."""

    def _put(self, name: str, path: Path) -> None:
        data, self._there[name] = path.read_bytes(), path.stat().st_size
        self.left = [*getattr(self, "left", ()), (name, data)]

    def _say(self, counting: Mapping[str, MirroredFile]) -> None:
        super()._say(counting)
        for name, data in getattr(self, "left", ()):
            directory.bucket_of(self._into).objects.write((self._into / name).key, [data])
        self.left = []


class NamesFirst(InABucket):
    sink_type = NamedFirst


@pytest.fixture(autouse=True)
def no_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_buckets", {})


def run_seed(seed: int, writer: type[Writer] = Numbered, *log: type[LogWriter]) -> None:
    with of_seed(seed):
        Schedule(seed, writer, *log).run()


@pytest.mark.seeded
@pytest.mark.parametrize("writer", [Numbered, Replaced, OfASlot, OfACopy, InABucket])
def test_each_line_is_shown_once_and_stays(writer: type[Writer]) -> None:
    run_each(lambda seed: run_seed(seed, writer), lambda seed: [], 10)


ABLATIONS: Iterable[tuple[type[LogWriter], type[Writer], str]] = (
    (ShowsWhatIsNotSynced, Numbered, "are shown|refused|now"),
    (ForgetsTheName, Numbered, "are shown|refused|now"),
    (ShowsWhatIsNotSynced, OfASlot, "are shown|refused|now"),
    (ForgetsTheName, OfASlot, "are shown|refused|now"),
    (RollsBeforeItSyncs, Numbered, "are shown|refused|now"),
    (CutsNothing, Numbered, "once and in order|now"),
    (CutsWhatOthersWrote, Replaced, "shown .*, now"),
    (BelievesTheCache, Numbered, "refused"),
)


def test_the_simulator_notices_a_bucket_that_names_what_is_not_there() -> None:
    seeds = range(SEEDS_OF_AN_ABLATION)
    notice("log: NamesFirst", seeds, lambda seed: run_seed(seed, NamesFirst), "none are there")


@pytest.mark.parametrize(("log", "writer", "finds"), ABLATIONS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_simulator_notices(log: type[LogWriter], writer: type[Writer], finds: str) -> None:
    seeds = range(SEEDS_OF_AN_ABLATION)
    notice(f"log: {log.__name__}, {writer.__name__}", seeds, lambda seed: run_seed(seed, writer, log), finds)
