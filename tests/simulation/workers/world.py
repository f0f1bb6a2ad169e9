"""Several workers on one state, in one thread: a seeded schedule of pauses, kills, lost leases, and the invariants.

Production code: follower over real files, core, database, leases, exports. Modelled: the engine's loop, the joiners,
and a registry that forgets nothing. A paused worker is one that is not stepped; joiners answer it meanwhile.

In some schedules last lines are torn: cut at any byte, and completed later or never. A torn line that is completed
later must never be taken for a whole one, however it reads; between the workers' lives, runs with ``--once`` try to.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import orjson

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.logs.identity import identity_of, log_name
from photon.adapters.logs.place_ids import place_id
from photon.adapters.logs.shared import SharedFollower
from photon.adapters.logs.unended_lines import RestRule
from photon.config.clock import NEVER_NS
from photon.config.disk import RealDisk
from photon.dispatcher.core import Core
from photon.dispatcher.database import lock_worker
from photon.dispatcher.errors import WorkerFenced
from photon.dispatcher.events import Batch
from photon.dispatcher.exports import Exports
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.limits import Limits
from photon.dispatcher.log_leases import LogLeases, Terms
from photon.dispatcher.retry import Patience
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.undecided import WorkerClaims, undecided
from photon.idregistry.api import Kind
from photon.joiner.api import JoinAnswers
from photon.outputs.output_places import OutputPlace
from tests.simulation.world.violation import Violation
from tests.unit.dispatcher import world

LIMITS = Limits(batch_events=4, hold_s=3.0, window_bytes=6000, spill_bytes=4000, parse_records=3)
LEASE_S = 10.0
STATE = "state"
OTHER = "there"
EVENT_IDS = 60
LOGS_MAX = 12
LAST_LINE_AFTER_S = 60.0
ONCE_STEPS, ONCE_STEP_S = 25, 0.8
"""A run with ``--once`` is stopped after this number of steps."""
WORDS = world.Words({})


@dataclass(frozen=True)
class Variant:
    """The parts that an ablation replaces."""

    state: type[SharedState] = SharedState
    holdings: type[LogLeases] = LogLeases
    claims: type[WorkerClaims] = WorkerClaims
    locked: bool = True
    """A stalled worker keeps the lines it has to export."""
    waits: bool = True
    """A last line without its end waits until its file is at rest."""


@dataclass
class Sent:
    """A batch at a joiner. ``answers``: set once it has answered."""

    batch: Batch
    answers: JoinAnswers | None = None


@dataclass
class Log:
    """The contents written into one log, regardless of its file's name."""

    path: Path
    number: int
    lines: list[bytes] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    """When each line got its line end; the last line may not have it yet."""
    rolled: bool = False
    """Nobody writes it any more."""
    unwritten: bytes = b""
    """Missing part of the last line; at least one byte while the line is torn."""
    written: float = 0.0
    given_up: bool = False
    """It was torn for good: the existing part is the line."""

    @property
    def there(self) -> bool:
        """It has a first line."""
        return len(self.lines) > bool(self.unwritten)

    @property
    def identity(self) -> str:
        return identity_of(log_name(self.path.name), self.lines[0])

    def read(self, offset: int, length: int) -> bytes:
        """Reads it as if all of it were written."""
        return b"".join(line + b"\n" for line in self.lines)[offset : offset + length]

    @property
    def size(self) -> int:
        """Its size once nothing of it is unwritten."""
        return sum(map(len, self.lines)) + len(self.lines) - self.given_up


class Worker:
    """One life of a process under a name."""

    def __init__(self, sea: Sea, name: str) -> None:
        self.sea = sea
        self.name = name
        self.paused = False
        self.sent: list[Sent] = []
        self.state = sea.variant.state(sea.directory / STATE / "s.db", name, now_ns=sea.now_ns())
        rest = RestRule(LAST_LINE_AFTER_S, sea.now_ns) if sea.variant.waits else None
        self.follower = SharedFollower(sea.directory / "logs", has_header=False, held=True, rest=rest)
        self.exports = self._exports(name)
        self.core: Core = world.core(self.state, limits=LIMITS, patience=sea.patience, seed=sea.random.randrange(99))
        self.holdings = sea.variant.holdings(
            self.state, self.follower, sea, Terms(LEASE_S, sea.split_bytes), adopt_exports=self._adopt
        )

        self.claims = sea.variant.claims(self.state.database, self.holdings, self.state.owner)

    def _exports(self, name: str) -> Exports:
        directory = self.sea.directory
        return Exports(directory, RealDisk(), self.state, directory / STATE, warn=lambda line: None, worker=name)

    def _adopt(self, name: str) -> None:
        lock = lock_worker(self.state.path, name)
        if lock is not None or not self.sea.variant.locked:
            self._exports(name).close()
        if lock is not None:
            os.close(lock)

    def end(self) -> None:
        """Ends it like kill -9."""
        self.exports.close()
        self.follower.close()
        self.state.close()

    def step(self) -> None:
        sea = self.sea
        match sea.random.randrange(10):
            case 0 | 1:
                self.holdings.turn(self.core, sea.now)
            case 2:
                self.scan()
            case 3 | 4:
                self.read()
            case 5:
                self.send()
            case 6 | 7:
                self.hear()
            case 8:
                self.load()
            case _:
                self.commit(flush=sea.random.random() < 0.7)

    def scan(self) -> None:
        self.follower.scan()
        self.claims.scanned(self.sea.now_ns())

    def read(self, *, final: bool = False) -> None:
        if self.core.room():
            final = final and self.follower.caught_up()
            for block in self.follower.poll(self.sea.random.choice((40, 200, 1 << 20)), final=final):
                world.take(self.core, block, self.sea.now_ns(), self.sea.now)

    def send(self) -> None:
        batch = self.core.next_batch(self.sea.now, flush=self.sea.random.random() < 0.7)
        if batch is not None:
            self.sent.append(Sent(batch))

    def answer(self) -> None:
        """A joiner answers one of its batches."""
        for sent in self.sent:
            if sent.answers is None and self.sea.random.random() < 0.7:
                sent.answers = self.sea.registry.answers(sent.batch.events.rows())

    def hear(self) -> None:
        for sent in [sent for sent in self.sent if sent.answers is not None]:
            assert sent.answers is not None
            self.sent.remove(sent)
            self.core.answered(sent.batch, sent.answers, self.sea.now_ns(), self.sea.now)

    def load(self) -> None:
        ids = self.state.due_ids(self.sea.now_ns(), 5)
        ids += self.state.triggered_ids(self.core.read_past_ns, 5)
        self.core.load(self.state.rows(self.core.unloaded(dict.fromkeys(ids))), self.sea.now_ns(), 0.0)

    def commit(self, *, flush: bool = True) -> None:
        changes = self.core.changes(self.sea.now_ns(), self.sea.now)
        if self.claims.due(self.sea.now):
            changes.also += self.claims.change(self.core.undecided(), self.sea.now_ns(), self.sea.now)
        elif not changes:
            return
        self.state.commit(changes)
        self.core.committed()
        self.sea.look_at_claims(self.state)
        ledger = self.state.ledger()
        if ledger.unbalanced or ledger.total.balance:
            raise Violation(f"the ledger does not balance: {ledger.total}")
        if flush:
            self.exports.flush()

    def at_rest(self) -> bool:
        core = self.core
        idle = not (core.open or self.sent or core.window_bytes)
        return idle and self.follower.caught_up()


@dataclass
class Sea:
    """A schedule. ``run`` raises Violation."""

    seed: int
    directory: Path
    variant: Variant = field(default_factory=Variant)

    def __post_init__(self) -> None:
        self.random = random = Random(self.seed)
        self.now = 100_000.0  # later than any event time
        self.counts: Counter[str] = Counter()
        self.patience = Patience(unmatched_after_ns=10**9)
        self.split_bytes = random.choice((None, 300, 2000))
        self.tearing = random.choice((0.0, 0.0, 0.4))
        """Share of writes that end within a line."""
        self.registry = world.FakeRegistry(self.seed, trouble=random.choice((0.0, 0.3, 0.8)))
        for n in range(EVENT_IDS):
            if random.random() < 0.1:
                self.registry.late.add(b"%d" % n)
            elif random.random() < 0.2:
                self.registry.owners[b"%d" % n] = (OTHER, Kind.JOINED, 0)
        (self.directory / "logs").mkdir()
        self.logs: list[Log] = []
        self.bad = 0
        for n in range(random.randrange(1, 7)):
            self.begin(self.directory / "logs" / f"{n:02}.log")
        self.names = [f"w{n}" for n in range(random.choice((2, 3)))]
        self.workers: dict[str, Worker] = {}
        self._claimed_ns = 0

    # -- the clock of all workers ------------------------------------------------------------------------------------
    def now_ns(self) -> int:
        return int(self.now * 1e9)

    def monotonic(self) -> float:
        return self.now

    # -- what happens ------------------------------------------------------------------------------------------------
    def begin(self, path: Path) -> None:
        """A new log; its first line is like no other's, and so are its keys."""
        log = Log(path, len(self.logs))
        self.logs.append(log)
        self.write(log, [b"- first.%d 0" % log.number])
        self.grow(log, self.random.choice((0, 5, 150)))

    def grow(self, log: Log, lines: int) -> None:
        self.write(log, [self.line(log) for _ in range(lines)])

    def line(self, log: Log) -> bytes:
        random = self.random
        word = random.choice([b"%d" % random.randrange(EVENT_IDS), b"-", b"-", b"bad"])
        if word == b"bad":
            self.bad += 1
            return b"bad%d" % self.bad
        hour = random.choice((-20, -1, 0, 11, 22))  # a torn one reads as well
        return b"%b k%d.%d %d" % (word, random.randrange(9), log.number, hour)

    def write(self, log: Log, lines: list[bytes]) -> None:
        """Completes the last line first."""
        log.whole += [self.now] * (len(log.lines) - len(log.whole))
        log.lines += lines
        data = log.unwritten + b"".join(line + b"\n" for line in lines)
        kept = 0
        if lines and self.random.random() < self.tearing:
            kept = self.random.randint(1, len(lines[-1]) + 1)
            self.counts["torn"] += 1
        log.unwritten, log.written = data[len(data) - kept :], self.now
        log.whole += [self.now] * (len(log.lines) - len(log.whole) - bool(kept))
        with open(log.path, "ab") as file:
            file.write(data[: len(data) - kept])
        os.utime(log.path, ns=(self.now_ns(), self.now_ns()))

    def give_up(self, log: Log) -> None:
        """Its writer has ended, perhaps within a line."""
        log.rolled = True
        left = len(log.unwritten)
        if not left:
            return
        line = log.lines.pop()
        if left <= len(line):
            log.lines.append(line[: len(line) + 1 - left])
            log.given_up = True
        log.unwritten = b""

    def end_line(self, log: Log) -> None:
        """A torn last line is completed, or never will be. A log without a line is ignored."""
        if self.random.random() < 0.5 and log.there:
            self.give_up(log)
        else:
            self.write(log, [])

    def once(self) -> None:
        """Like ``--once``: a process reads the existing lines while nothing is written, including last lines of files
        at rest. A writer that continues a line after that time has broken the rule, and is not checked here."""
        self.counts["once"] += 1
        for name in list(self.workers):
            self.end(name)
        for log in self.logs:
            if not log.there and self.now + ONCE_STEPS * ONCE_STEP_S - log.written >= LAST_LINE_AFTER_S:
                self.write(log, [])
        self.start(self.names[0])
        for _ in range(ONCE_STEPS):
            self.now += ONCE_STEP_S
            self.act(self.names[0], self._all_of_it)
        self.end(self.names[0])
        for log in self.logs:
            if log.unwritten and log.there and self.now - log.written >= LAST_LINE_AFTER_S:
                self.give_up(log)

    def roll(self, log: Log) -> None:
        """Renamed or compressed; sometimes another one begins under its name."""
        if log.unwritten:
            self.end_line(log)
        self.counts["rolled"] += 1
        before, log.rolled = log.path, True
        log.path = before.with_name(before.name + f".{log.number + 1}")
        before.rename(log.path)
        if self.random.random() < 0.5:
            packed = log.path.with_name(log.path.name + ".gz")
            packed.write_bytes(gzip.compress(log.path.read_bytes()))
            log.path.unlink()
            log.path = packed
        if self.random.random() < 0.5:
            self.begin(before)

    def change(self) -> None:
        """Something is written, or rolled."""
        growing = [log for log in self.logs if not log.rolled]
        if not growing:
            return
        log = self.random.choice(growing)
        if self.random.random() < 0.05 and len(self.logs) < LOGS_MAX:
            self.roll(log)
        else:
            self.grow(log, self.random.randrange(5))

    def start(self, name: str) -> None:
        self.counts["started"] += 1
        self.workers[name] = Worker(self, name)

    def end(self, name: str) -> None:
        self.workers.pop(name).end()

    def act(self, name: str, work: Callable[[Worker], None]) -> None:
        """A worker does something; a fenced worker starts over."""
        try:
            work(self.workers[name])
        except WorkerFenced:
            self.counts["fenced"] += 1
            self.end(name)
            self.start(name)

    def step(self) -> None:
        random = self.random
        self.now += random.choice((0.0, 0.1, 0.5))
        if self.tearing and random.random() < 0.004:
            self.once()
        name = random.choice(self.names)
        worker = self.workers.get(name)
        if worker is None:
            if random.random() < 0.2:
                self.start(name)
            return
        worker.answer()
        mood = random.random()
        if mood < 0.004:
            self.counts["killed"] += 1
            self.end(name)
        elif mood < 0.012:
            self.counts["paused"] += not worker.paused
            worker.paused = True
        elif worker.paused:
            worker.paused = random.random() > 0.02
        elif mood < 0.05:
            self.change()
        else:
            self.act(name, Worker.step)

    def run(self) -> None:
        try:
            for _ in range(self.random.choice((300, 1500))):
                self.step()
            self._finish()
            self._check()
        finally:
            for name in list(self.workers):
                self.end(name)

    def _finish(self) -> None:
        """No more trouble: the living workers read and decide everything."""
        self.registry.trouble = 0.0
        for log in [log for log in self.logs if log.unwritten]:
            self.end_line(log)
        if any(log.given_up for log in self.logs):
            self.now += LAST_LINE_AFTER_S
        gone = self.random.choice(self.names) if len(self.names) > 1 and self.random.random() < 0.3 else None
        if gone in self.workers:
            self.end(gone)
        living = [name for name in self.names if name != gone]
        self._settled_ns = self.now_ns()
        for _ in range(3000):
            self.now += 1.5
            for name in living:
                if name not in self.workers:
                    self.start(name)
                self.workers[name].paused = False
                self.act(name, self._all_of_it)
            if self._at_rest(living):
                return
        raise Violation("it never comes to rest")

    def _all_of_it(self, worker: Worker) -> None:
        worker.core.progressed(2**62)
        worker.holdings.turn(worker.core, self.now)
        worker.scan()
        worker.read()
        worker.read(final=True)
        worker.load()
        for _ in range(5):
            worker.send()
        worker.answer()
        worker.hear()
        worker.commit()
        worker.exports.flush()

    def _at_rest(self, living: list[str]) -> bool:
        workers = [self.workers[name] for name in living]
        if not all(worker.at_rest() for worker in workers):
            return False
        state = workers[0].state
        state.refresh()
        offsets = {position.identity: position.offset for position in state.positions()}
        done = all(offsets.get(log.identity, 0) == log.size for log in self.logs) and not state.parts()
        said = undecided(state.database)
        claimed = said is not None and (said.read_ns or 0) >= self._settled_ns and said.oldest_ns == NEVER_NS
        shares = sorted(len(worker.holdings.units) for worker in workers)
        even = sum(shares) == len(self.logs) and shares[-1] - shares[0] <= 1
        exported = not state.outbox(1, state.worker) and not state.outbox_of_others()
        return done and even and exported and not state.retry_rows and claimed

    # -- what must hold ----------------------------------------------------------------------------------------------
    def look_at_claims(self, state: SharedState) -> None:
        """Lines without a verdict in logs that are said to be read to the end are counted, and hold back the
        watermark."""
        said = undecided(state.database)
        if said is None or said.read_ns is None:
            return
        self.counts["claims moved"] += said.read_ns > self._claimed_ns
        if said.read_ns < self._claimed_ns:
            raise Violation("claim: it went back")
        self._claimed_ns = said.read_ns
        times = sorted(self._without_verdict(said.read_ns))
        for number, time_ns in enumerate(times, 1):
            if said.oldest_ns > times[0] or said.before(time_ns + 1) < number:
                raise Violation(f"claim: {number} events before {time_ns} have no verdict, {said} counts fewer")

    def _without_verdict(self, read_ns: int) -> Iterator[int]:
        for log in self.logs:
            at = 0
            for line, whole in zip(log.lines, log.whole, strict=False):
                begin, at = at, at + len(line) + 1
                if whole * 1e9 > read_ns:
                    break
                with suppress(BadRecord, ValueError):
                    header = WORDS.foreign_header(line, LogFile(""))
                    event_id = header.event_id or place_id(line, begin, log.read)
                    if event_id not in self.registry.owners and event_id not in self.registry.late:
                        yield header.event_time_ns

    def _check(self) -> None:
        state = next(iter(self.workers.values())).state
        total = state.ledger().total
        expected, exported = self._expected()
        found = Counter({Verdict.READ: total.read} | dict(total.verdicts))
        if +found != +expected or total.pending or total.reread:
            raise Violation(f"ledger: {total}, expected {+expected}")
        place = OutputPlace(self.directory, self.directory / STATE)
        for log in ("rejected", "late"):
            shown = [file for each in place.published(RealDisk()) for file in each.files if file.kind == log]
            written = b"".join((self.directory / file.name).read_bytes()[: file.length] for file in shown)
            try:
                lines = [orjson.loads(line) for line in written.splitlines()]
            except ValueError as error:
                raise Violation(f"{log}: a damaged line ({error})") from None
            found_lines = Counter((line["record"].encode(), line["source"]["offset"]) for line in lines)
            if found_lines != exported[log]:
                more, less = found_lines - exported[log], exported[log] - found_lines
                raise Violation(f"{log}: too many {more}, missing {less}")

    def _expected(self) -> tuple[Counter[Verdict], dict[str, Counter[tuple[bytes, int]]]]:
        """Expected counts, and the lines of each export with their offsets."""
        counts: Counter[Verdict] = Counter()
        exported: dict[str, Counter[tuple[bytes, int]]] = {"rejected": Counter(), "late": Counter()}
        seen: set[bytes] = set()
        for log in self.logs:
            at = 0
            for line in log.lines:
                counts[Verdict.READ] += 1
                try:
                    event_id = WORDS.foreign_header(line, LogFile("")).event_id
                except (BadRecord, ValueError):
                    counts[Verdict.REJECTED] += 1
                    exported["rejected"][line, at] += 1
                else:
                    event_id = event_id or place_id(line, at, log.read)
                    if self._expect(event_id, counts, seen) is Verdict.LATE:
                        exported["late"][line, at] += 1
                at += len(line) + 1
        return counts, exported

    def _expect(self, event_id: bytes, counts: Counter[Verdict], seen: set[bytes]) -> Verdict:
        owner = self.registry.owners.get(event_id)
        if event_id in self.registry.late:
            verdict = Verdict.LATE
        elif owner is None:
            raise Violation(f"lost: {event_id!r}")
        elif owner[0] == OTHER:
            verdict = Verdict.ELSEWHERE
        elif event_id in seen:
            verdict = Verdict.DUPLICATE
        else:
            verdict = Verdict(int(owner[1]))
            seen.add(event_id)
        counts[verdict] += 1
        return verdict
