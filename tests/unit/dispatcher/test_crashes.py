"""Core and database under random outcomes and crashes: every record is counted exactly once, at every commit.

The log is a list of lines; a crash loses everything except the database, and reading resumes at its offset.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from photon.adapters.logs.place_ids import place_id
from photon.config.clock import NEVER_NS
from photon.dispatcher.core import Core
from photon.dispatcher.events import Batch
from photon.dispatcher.exports import Exports
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.retry import Patience
from photon.dispatcher.state import State
from photon.idregistry.api import Kind
from tests.unit.dispatcher import world

LIMITS = Limits(batch_events=4, hold_s=3.0, hold_once_s=6.0, window_bytes=6000, hold_bytes=4000, parse_records=3)
OTHER = "there"


class Run:
    """One schedule."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.registry = world.FakeRegistry(seed, trouble=self.random.choice([0.0, 0.3, 0.9]))
        self.logs = {f"log{n}": self._lines() for n in range(self.random.randrange(1, 3))}
        for n in range(30):
            if self.random.random() < 0.1:
                self.registry.late.add(b"%d" % n)
            elif self.random.random() < 0.2:
                self.registry.owners[b"%d" % n] = (OTHER, Kind.JOINED, 0)
        self.patience = self.random.choice([Patience(once=True), Patience(unmatched_after_ns=10**9)])
        self.now = 100_000.0  # later than any event time
        self.start()

    def _lines(self) -> list[bytes]:
        lines = []
        for _ in range(self.random.randrange(40)):
            word = self.random.choice([b"%d" % self.random.randrange(30), b"-", b"bad", b""])
            lines.append(word if word in (b"bad", b"") else b"%b k %d" % (word, self.random.randrange(-2, 3)))
        return [line + b"\n" for line in lines]

    def start(self) -> None:
        self.state = State(self.directory / "state.db")
        self.exports: Exports | None = world.exports(self.directory, self.state)
        self.core: Core = world.core(self.state, limits=LIMITS, patience=self.patience)
        self.at = dict.fromkeys(self.logs, 0) | {p.identity: p.offset for p in self.state.positions()}
        self.batches: list[Batch] = []
        self.swept = 0

    def crash(self) -> None:
        if self.exports is not None:
            self.exports.close()
        self.state.close()
        self.start()

    def wall(self) -> int:
        return int(self.now * 1e9)

    def read(self) -> None:
        identity = self.random.choice(list(self.logs))
        whole, at = b"".join(self.logs[identity]), self.at[identity]
        rest = whole[at:]
        lines = rest.split(b"\n")[:-1][: self.random.randrange(1, 12)]
        if lines and self.core.intake.room():
            data = b"\n".join(lines) + b"\n"
            block = world.block(data, at, identity=identity, path=identity, before=whole[:at])
            world.take(self.core, block, self.wall(), self.now)
            self.at[identity] += len(data)

    def send(self) -> None:
        batch = self.core.next_batch(self.now, flush=self.random.random() < 0.5)
        if batch is not None:
            self.batches.append(batch)

    def answer(self) -> None:
        if self.batches:
            batch = self.batches.pop(self.random.randrange(len(self.batches)))
            events = batch.events.rows()
            self.core.answered(batch, self.registry.answers(events), self.wall(), self.now)

    def load(self) -> None:
        behind = self.state.keys_behind(self.swept, 5)
        ids = [row for row, _ in behind if row <= self.state.last_row_at_open]
        self.swept = ids[-1] if ids else self.swept
        ids += self.state.due_ids(self.wall(), 5) + self.state.triggered_ids(self.core.waiting.read_past_ns, 5)
        self.core.waiting.load(
            self.state.rows(self.core.waiting.loaded.without(dict.fromkeys(ids))), self.wall(), 0.0
        )

    def commit(self, *, flush: bool = True) -> None:
        self.state.commit(self.core.committing.changes(self.wall(), self.now))
        self.core.committing.committed()
        assert not self.state.ledger().unbalanced
        if flush and self.exports is not None:
            self.exports.flush()

    def step(self) -> None:
        self.now += self.random.random()
        match self.random.randrange(12):
            case 0 | 1 | 2:
                self.read()
            case 3 | 4:
                self.send()
            case 5 | 6:
                self.answer()
            case 7:
                self.load()
            case 8:
                self.commit(flush=self.random.random() < 0.7)
            case 9:
                self.core.waiting.progressed(self.random.randrange(self.wall() + 1))
            case _:
                if self.random.random() < 0.3:
                    self.crash()

    def finish(self) -> None:
        """No more trouble: everything is read and decided."""
        self.registry.trouble = 0.0
        self.core.waiting.progressed(NEVER_NS - 1)
        for _ in range(100_000):
            self.now += 700.0
            self.read()
            self.send()
            self.answer()
            self.load()
            self.commit()
            if all(self.at[name] == sum(map(len, lines)) for name, lines in self.logs.items()) and not (
                self.core.waiting.open or self.batches or self.core.logs.window_bytes or self.state.retry_rows
            ):
                return
        raise AssertionError("it never comes to rest")

    def expected(self) -> tuple[Counter[Verdict], Counter[str]]:
        counts: Counter[Verdict] = Counter()
        exported: Counter[str] = Counter()
        seen: set[bytes] = set()
        for lines in self.logs.values():
            at, whole = 0, b"".join(lines)

            def read(offset: int, length: int, whole: bytes = whole) -> bytes:
                return whole[offset : offset + length]

            for line in lines:
                words = line.split()
                if len(words) == 3:
                    event_id = words[0] if words[0] != b"-" else place_id(line.rstrip(b"\n"), at, read)
                    counts[Verdict.READ] += 1
                    owner = self.registry.owners.get(event_id)
                    if event_id in self.registry.late:
                        counts[Verdict.LATE] += 1
                        exported["late"] += 1
                    elif owner is not None and owner[0] == OTHER:
                        counts[Verdict.ELSEWHERE] += 1
                    elif event_id in seen:
                        counts[Verdict.DUPLICATE] += 1
                    else:
                        assert owner is not None
                        counts[Verdict(int(owner[1]))] += 1
                        seen.add(event_id)
                elif words:
                    counts[Verdict.READ] += 1
                    counts[Verdict.REJECTED] += 1
                    exported["rejected"] += 1
                at += len(line)
        return counts, exported


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32))
@example(56151115)  # the same line at the same offset of two logs is a duplicate, not a re-read
def test_every_record_is_counted_once_whatever_happens(seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Run(seed, Path(name))
        for _ in range(run.random.randrange(200)):
            run.step()
        run.finish()
        total = run.state.ledger().total
        counts, exported = run.expected()
        assert +Counter({Verdict.READ: total.read} | dict(total.verdicts)) == +counts
        assert total.pending == 0
        assert total.reread == 0  # the offset is never behind what was counted
        for log in ("rejected", "late"):
            files = sorted((Path(name) / log).glob("dispatcher-*.jsonl"))
            lines = [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]
            places = [(line["source"]["file"], line["source"]["offset"], line["record"]) for line in lines]
            assert len(places) == len(set(places)) == exported[log]
        run.state.close()
