"""Random primary logs, rotated, compressed, truncated, deleted and restarted, against a dictionary of their records.

PHOTON_SEED replays one run.
"""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zstandard

from photon.adapters.logs.identity import log_name
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.eventstore.file_map import MapKind
from photon.eventstore.unavailable import UnavailableLogs
from tests.kit.clock import ManualClock

from .helpers import Store

SEEDS = 300 if os.environ.get("PHOTON_FULL") else 8


@dataclass
class Log:
    """One log as it should be: ``records`` are (offset, key, record); a first one makes its identity its own."""

    path: str
    data: bytes = b""
    records: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    closed: bool = False
    gone: bool = False


class Model:
    """The logs, their changes, and the expected answer of a look-up."""

    def __init__(self, base: Path, kind: MapKind, rng: random.Random) -> None:
        self.base = base
        self.kind = kind
        self.rng = rng
        self.logs: list[Log] = []
        self.serial = 0
        self.micros = 1_000_000
        self.cache_bytes = rng.choice((1, 3000, 1 << 20))
        self.clock = ManualClock()
        self.store = self.opened()

    def opened(self) -> Store:
        store = Store(self.base, kind=self.kind, cache_bytes=self.cache_bytes)
        self.clock = store.clock
        return store

    # -- what happens to logs ----------------------------------------------------------------------------------------
    def key(self) -> bytes:
        """A new id, now and then an old one or none in order."""
        if self.rng.random() < 0.05:
            return b"odd%d" % self.rng.randrange(30)
        process = b"10.0.0.%d:%d" % (self.rng.randrange(1, 3), self.rng.randrange(1, 4))
        if self.rng.random() < 0.1:
            return process + b":%d" % self.rng.randrange(1_000_000, self.micros + 1)
        self.micros += self.rng.randrange(1, 400_000)
        return process + b":%d" % self.micros

    def append(self) -> None:
        open_logs = [log for log in self.logs if not log.closed]
        if not open_logs or (len(open_logs) < 3 and self.rng.random() < 0.1):
            name = f"log{len(self.logs)}.log" if self.rng.random() < 0.5 else f"deep/log{len(self.logs)}.log"
            open_logs = [Log(name)]
            self.logs += open_logs
        log = self.rng.choice(open_logs)
        lines = []
        for _ in range(self.rng.randrange(1, 40)):
            self.serial += 1
            key = self.key()
            record = b"%s,%d,%s" % (key, self.serial, b"x" * self.rng.choice((0, 50, 3000)))
            log.records.append((len(log.data) + sum(map(len, lines)), key, record))
            lines.append(record + self.rng.choice((b"\n", b"\r\n")))
        log.data += b"".join(lines)
        path = self.store.logs / log.path
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(b"".join(lines))

    def rotate(self) -> None:
        if live := [log for log in self.logs if not log.closed and log.data]:
            log = self.rng.choice(live)
            log.closed = True
            self.move(log, log.path + f".{self.rng.randrange(1, 99)}")

    def move(self, log: Log, path: str) -> None:
        (self.store.logs / log.path).rename(self.store.logs / path)
        log.path = path

    def compress(self) -> None:
        closed = [log for log in self.logs if log.closed and not log.gone and not log.path.endswith(("gz", "zst"))]
        if closed:
            log = self.rng.choice(closed)
            cut = self.rng.randrange(len(log.data))
            pack, suffix = self.rng.choice(
                ((gzip.compress, ".gz"), (zstandard.ZstdCompressor(level=1).compress, ".zst"))
            )
            squeeze: Callable[[bytes], bytes] = pack
            old = self.store.logs / log.path
            log.path += suffix
            (self.store.logs / log.path).write_bytes(squeeze(log.data[:cut]) + squeeze(log.data[cut:]))
            old.unlink()

    def copy_and_truncate(self) -> None:
        """As logrotate's copytruncate does, between two scans."""
        if live := [log for log in self.logs if not log.closed and log.data]:
            log = self.rng.choice(live)
            path = self.store.logs / log.path
            log.closed = True
            log.path += ".1"
            (self.store.logs / log.path).write_bytes(log.data)
            path.write_bytes(b"")

    def truncate(self) -> None:
        """In place, without a copy: the old contents are gone, and another log begins in the same file."""
        if live := [log for log in self.logs if not log.closed and log.data]:
            log = self.rng.choice(live)
            log.closed = log.gone = True
            (self.store.logs / log.path).write_bytes(b"")
            self.logs.append(Log(log.path))

    def delete(self) -> None:
        if closed := [log for log in self.logs if log.closed and not log.gone]:
            log = self.rng.choice(closed)
            (self.store.logs / log.path).unlink()
            log.gone = True

    def restart(self) -> None:
        """Without a commit: uncommitted entries are read again."""
        if self.rng.random() < 0.5:
            self.store.reader.commit()
        self.store.close()
        self.store = self.opened()

    # -- what is to be said ------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Everything is read; then each key's first record in the order of logs is found, and no other key is."""
        self.store.read_all()
        self.store.clock.ns += 10
        self.store.read_all()
        mapped = {log.identity: log for log in self.store.map.logs()}
        identity_of = {}
        for identity in mapped:
            path = self.store.resolve(identity)
            if path is not None:
                identity_of[path] = identity
        present = [log for log in self.logs if log.data and not log.gone]
        assert sorted(log.path for log in present) == sorted(identity_of)
        order = sorted(present, key=lambda log: (log_name(log.path), identity_of[log.path]))
        first: dict[bytes, tuple[str, int, bytes]] = {}
        for log in order:
            for offset, key, record in log.records:
                first.setdefault(key, (log_name(log.path), offset, record))
        gone = {key for log in self.logs if log.gone for _, key, _ in log.records}
        keys = [*first, b"nobody", b"10.0.0.1:1:999"]
        self.rng.shuffle(keys)
        keys = keys[:400]
        said = self.store.tiers.look_up(keys, [0] * len(keys))
        for key, answer, record in zip(keys, said.answers, said.records, strict=True):
            if key in gone or (any(log.gone for log in self.logs) and self.kind is MapKind.SPARSE):
                continue  # a span of a gone log may have held it: checked once that is given up
            if key not in first:
                assert answer is LookUpCode.ABSENT, key
                continue
            assert answer is LookUpCode.FOUND, (key, first[key])
            # A cached entry names the file that it was read from, which may have been renamed since.
            assert (log_name(record.file.path), record.offset, record.record) == first[key]


STEPS = {"append": 12, "rotate": 2, "compress": 2, "copy_and_truncate": 1, "restart": 1, "check": 3}

# A span of a sparse map in a lost log would make most keys unavailable; those are for the test below.
LOSING = {"truncate": 1, "delete": 1}


@pytest.mark.parametrize("kind", MapKind)
@pytest.mark.parametrize("number", range(SEEDS))
def test_each_key_is_answered_as_by_a_dictionary(tmp_path: Path, kind: MapKind, number: int) -> None:
    seed = int(os.environ.get("PHOTON_SEED", 1000 + number))
    print("PHOTON_SEED", seed)
    rng = random.Random(seed)
    model = Model(tmp_path, kind, rng)
    steps = STEPS | LOSING if kind is MapKind.DENSE and number % 2 else STEPS
    for _ in range(40):
        step = rng.choices(list(steps), weights=list(steps.values()))[0]
        getattr(model, step)()
    model.check()
    model.store.close()


@pytest.mark.parametrize("kind", MapKind)
@pytest.mark.parametrize("number", range(4))
def test_deleted_logs_wait_and_given_up_ones_have_never_been(tmp_path: Path, kind: MapKind, number: int) -> None:
    rng = random.Random(number)
    model = Model(tmp_path, kind, rng)
    for _ in range(12):
        model.append()
        model.rotate()
    model.check()
    for _ in range(4):
        model.delete()
    store = model.store
    store.reads.close()
    store.read_all()
    watched = UnavailableLogs(tmp_path / "map", store.clock, RealDisk())
    watched.scanned(store.follower.present())
    only_there = {
        key for log in model.logs if log.gone for _, key, _ in log.records
    } - {key for log in model.logs if not log.gone for _, key, _ in log.records}  # fmt: skip
    keys = sorted(only_there)
    assert keys
    if model.cache_bytes == 1:
        assert set(store.tiers.look_up(keys, [0] * len(keys)).answers) == {LookUpCode.UNAVAILABLE}
    watched.forget([log.identity for log in store.map.logs()], store.map.logs(), apply=True)
    store.tiers.given_up = lambda: watched.given_up
    said = store.tiers.look_up(keys, [0] * len(keys)).answers
    assert set(said) <= ({LookUpCode.ABSENT} if model.cache_bytes == 1 else {LookUpCode.ABSENT, LookUpCode.FOUND})
    for log in model.logs:
        if log.gone:
            log.records.clear()
            log.gone, log.data = False, b""
    model.check()
    store.close()
