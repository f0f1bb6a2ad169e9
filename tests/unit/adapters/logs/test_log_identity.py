"""The bytes that form one log: two datacentres read one directory at different moments, while files are written,
rotated, copied, linked, renamed, moved, compressed, truncated and replaced. Lines carry no ids.

Each line gets one record over both datacentres, or the indistinguishable logs are named. A line is identified here by
all bytes up to its end.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from photon.adapters.contract import Adapter, ForeignHeader, LogFile
from photon.adapters.logs import follower, reading, same_beginnings
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.place_ids import CONTEXT_BYTES
from photon.adapters.logs.problems import AMBIGUOUS, Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.tail import Tail
from photon.adapters.logs.tracked_logs import TrackedFile
from photon.adapters.logs.watching import Watch, open_watcher
from photon.idregistry.api import Digester
from photon.joiner import foreign_columns
from photon.joiner.foreign_columns import events_of, records_of

DIGESTER = Digester(b"k" * 32, "test")
NAMED = {*AMBIGUOUS, ProblemKind.COPY}
SILENT = {ProblemKind.UNREADABLE, ProblemKind.DAMAGED, ProblemKind.UNSUPPORTED}
LOGS = ["app.log", "web.log"]
BEGINNING = b"service started"
TICK = b"tick"


class NoIds(Adapter):
    """Lines without ids."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(record, 0)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return record

    primary_payload = foreign_payload


class Datacentre:
    """A reader with its durable positions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.durable: list[LogPosition] = []
        self.told: list[Problem] = []
        self.read_lines: Counter[bytes] = Counter()  # as in ``World.written``
        self.open()

    def open(self) -> None:
        watcher = open_watcher(self.world.directory, self.world.watch, print)
        enter = watcher.enter if watcher is not None else lambda path: None
        self.follower = Follower(
            self.world.directory, has_header=False, positions=self.durable, report=self.told.append, enter=enter
        )
        self.follower.speak()
        self.tail = Tail(self.follower, watcher, self.world.tick)

    def close(self) -> None:
        self.tail.close()
        self.follower.close()

    def restart(self) -> None:
        self.durable = self.follower.positions()
        self.kill()

    def kill(self) -> None:
        self.close()
        self.open()

    def read(self, *, final: bool = False) -> None:
        self.tail.scan()
        while blocks := self.follower.poll(1 << 20, final=final):
            self.world.take(self, blocks)
        self.world.seen.update(*self.world.holding.values())


class World:
    """The files, their writers, and one record for each id over both datacentres."""

    def __init__(self, directory: Path, watch: Watch = Watch.POLL) -> None:
        self.directory = directory
        self.watch = watch
        self.now = 0.0
        self.count = 0
        self.written: dict[int, bytes] = {}  # a line that somebody wrote, by number -> all bytes up to its end
        self.holding: dict[str, list[int]] = {}  # file -> its lines; a copy holds the same ones
        self.seen: set[int] = set()  # lines that stood in a file while somebody read
        self.ids: set[bytes] = set()  # registered
        self.joined: Counter[bytes] = Counter()  # lines, as in ``written``
        self.rereads = False  # something happened after which lines may rightly be read again
        self.begins_differ = True  # no two logs were given the same beginning, nothing was copied
        self.readers = [Datacentre(self), Datacentre(self)]

    def tick(self) -> float:
        self.now += 0.001
        return self.now

    # -- what happens to files -------------------------------------------------------------------------------------
    def write(self, name: str, lines: Iterable[bytes]) -> None:
        path = self.directory / name
        before = path.read_bytes() if path.exists() else b""
        for line in lines:
            before += line + b"\n"
            self.begins_differ = self.begins_differ and before not in self.written.values()
            self.holding.setdefault(name, []).append(len(self.written))
            self.written[len(self.written)] = before
        with path.open("ab") as file:
            file.write(before[file.tell() :])

    def lines(self, name: str, count: int, *, alike: bool = False) -> None:
        fresh = [] if (self.directory / name).exists() else [BEGINNING if alike else b"begin %d" % self.unique()]
        self.write(name, fresh + [TICK if at % 2 else b"line %d" % self.unique() for at in range(count)])

    def ticks(self, name: str) -> None:
        self.write(name, [TICK])

    def unique(self) -> int:
        self.count += 1
        return self.count

    def files(self) -> list[str]:
        found = (each for each in self.directory.rglob("*") if each.is_file() and not each.is_symlink())
        return sorted(str(each.relative_to(self.directory)) for each in found)

    def rename(self, name: str, to: str) -> None:
        if (self.directory / name).exists() and not (self.directory / to).exists():
            (self.directory / to).parent.mkdir(exist_ok=True)
            (self.directory / name).rename(self.directory / to)
            self.holding[to] = self.holding.pop(name)

    def copy(self, name: str, to: str) -> None:
        if (self.directory / name).exists() and not (self.directory / to).exists():
            self.begins_differ = False
            shutil.copy(self.directory / name, self.directory / to)
            self.holding[to] = list(self.holding[name])

    def link(self, name: str, to: str) -> None:
        if (self.directory / name).exists() and not (self.directory / to).exists():
            (self.directory / to).symlink_to(self.directory / name)

    def compress(self, name: str) -> None:
        path, packed = self.directory / name, self.directory / f"{name}.gz"
        if path.exists() and not name.endswith(".gz") and not packed.exists():
            packed.write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
            self.holding[f"{name}.gz"] = self.holding.pop(name)

    def truncate(self, name: str) -> None:
        if (self.directory / name).exists():
            self.rereads = True
            (self.directory / name).write_bytes(b"")
            self.holding[name] = []

    def remove(self, name: str) -> None:
        if (self.directory / name).exists():
            self.rereads = True
            (self.directory / name).unlink()
            del self.holding[name]

    # -- readers ---------------------------------------------------------------------------------------------------
    def take(self, reader: Datacentre, blocks: list[Block]) -> None:
        for block in blocks:
            events = events_of(block, *records_of(block), NoIds({}), DIGESTER).events
            known = block.before + block.data
            for event_id, offset, record in zip(events.ids, events.offsets.tolist(), events.records, strict=True):
                line = known[: offset + len(record) + 1]
                reader.read_lines[line] += 1
                self.joined[line] += event_id not in self.ids
                self.ids.add(event_id)

    def check(self) -> None:
        for reader in self.readers:
            for _ in range(4):  # copies are recognized once three scans saw them
                reader.read()
            reader.read(final=True)
        told = {problem.kind for reader in self.readers for problem in reader.told}
        assert not told & SILENT
        assert self.joined.keys() <= set(self.written.values()), "a line that nobody wrote"
        assert set(self.joined.values()) <= {0, 1}, "doubled"
        assert all(self.joined[self.written[line]] for line in self.seen), "lost"
        # Two files that were equal only for a moment cannot be distinguished from a log and its copy.
        there = {line for lines in self.holding.values() for line in lines}
        twice = [each for each, count in Counter(self.written[line] for line in there).items() if count > 1]
        assert not twice or told & NAMED, "lines that cannot be told apart were counted once, and nobody was told"
        assert not self.begins_differ or self.rereads or not told & NAMED
        if not self.rereads and self.begins_differ:
            assert all(count == 1 for reader in self.readers for count in reader.read_lines.values()), "read again"


class LogIdentity(RuleBasedStateMachine):
    """Draws the actions."""

    watch = Watch.POLL

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.world = World(Path(self.place.name), self.watch)

    def some(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.world.files()))

    @rule(name=st.sampled_from(LOGS), count=st.integers(1, 4), alike=st.booleans())
    def lines(self, name: str, count: int, alike: bool) -> None:
        self.world.lines(name, count, alike=alike)

    @rule(name=st.sampled_from(LOGS))
    def ticks(self, name: str) -> None:
        self.world.ticks(name)

    @rule(name=st.sampled_from(LOGS), style=st.sampled_from(["{0}.log.{1}", "{0}.{1}.log", "day-{1}/{0}.log"]))
    def rotate(self, name: str, style: str) -> None:
        self.world.rename(name, style.format(name.removesuffix(".log"), self.world.unique()))

    @rule(name=st.sampled_from(LOGS))
    def copy_and_truncate(self, name: str) -> None:
        self.world.copy(name, f"{name}.{self.world.unique()}")
        self.world.truncate(name)

    @precondition(lambda self: self.world.files())
    @rule(data=st.data(), to=st.sampled_from(["{0}.bak", "{0} (copy)", "old/{0}"]))
    def rename(self, data: st.DataObject, to: str) -> None:
        name = self.some(data)
        if not name.endswith(".gz"):
            self.world.rename(name, to.format(name.replace("/", "-")))

    @precondition(lambda self: self.world.files())
    @rule(data=st.data(), to=st.sampled_from(["{0}.bak", "{0}~", "copies-of-{0}"]))
    def copy(self, data: st.DataObject, to: str) -> None:
        name = self.some(data)
        if not name.endswith(".gz"):
            self.world.copy(name, to.format(name.replace("/", "-")))

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def link(self, data: st.DataObject) -> None:
        name = self.some(data)
        self.world.link(name, f"link-{self.world.unique()}{'.gz' if name.endswith('.gz') else ''}")

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def append_to_any(self, data: st.DataObject) -> None:
        """Appends to copies, too: then they are separate logs."""
        name = self.some(data)
        if not name.endswith(".gz"):
            self.world.lines(name, 1)

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def compress(self, data: st.DataObject) -> None:
        self.world.compress(self.some(data))

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        name = self.some(data)
        if not name.endswith(".gz"):
            self.world.truncate(name)

    @rule(name=st.sampled_from(LOGS), alike=st.booleans())
    def replace(self, name: str, alike: bool) -> None:
        self.world.remove(name)
        self.world.lines(name, 2, alike=alike)

    @rule(reader=st.integers(0, 1))
    def read(self, reader: int) -> None:
        self.world.readers[reader].read()

    @rule(reader=st.integers(0, 1))
    def restart(self, reader: int) -> None:
        self.world.readers[reader].restart()

    @rule(reader=st.integers(0, 1))
    def kill(self, reader: int) -> None:
        self.world.rereads = True
        self.world.readers[reader].kill()

    @invariant()
    def short(self) -> None:
        """Logs are short enough that a record's context is everything before it."""
        if hasattr(self, "world"):
            assert all(len(line) < CONTEXT_BYTES for line in self.world.written.values())

    def teardown(self) -> None:
        try:
            self.world.check()
        finally:
            for reader in self.world.readers:
                reader.close()
            self.place.cleanup()


class Notified(LogIdentity):
    watch = Watch.NATIVE


LogIdentity.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
Notified.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)
TestPolled = LogIdentity.TestCase
TestNotified = Notified.TestCase


# -- without a rule the test notices ---------------------------------------------------------------------------------
def play(*script: tuple[Any, ...]) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        try:
            for what, *arguments in script:
                if what in ("read", "restart", "kill"):
                    getattr(world.readers[arguments[0]], what)()
                else:
                    getattr(world, what)(*arguments)
            world.check()
        finally:
            for reader in world.readers:
                reader.close()


def ids_by(made: Callable[[Block, bytes, int], bytes]) -> Callable[..., list[bytes]]:
    def ids(block: Block, records: list[bytes], offsets: list[int], given: list[None]) -> list[bytes]:
        return [b"%b:%d" % (made(block, *each), each[1]) for each in zip(records, offsets, strict=True)]

    return ids


def before(block: Block, record: bytes, offset: int) -> bytes:
    return (block.before + block.data)[: offset - block.offset + len(block.before)].hex().encode()


class Untold(ProblemReporter):
    def tell(self, kind: ProblemKind, *args: Any, **options: Any) -> None:
        if kind not in NAMED:
            super().tell(kind, *args, **options)


MOVED = (("write", "app.log", [b"a", b"b"]), ("read", 0), ("rename", "app.log", "day-1/app.log"), ("read", 1))
ALIKE = (("write", "app.log", [BEGINNING, b"a"]), ("write", "web.log", [BEGINNING, b"b"]), ("read", 0))
TICKS = (("write", "app.log", [b"begin 1", TICK]), ("write", "web.log", [b"begin 2", TICK]), ("read", 0))
BOTH_READ = (("read", 0), ("read", 1))
COPIED = (("write", "app.log", [b"a", b"b"]), *BOTH_READ, ("copy", "app.log", "app.log.bak"), *BOTH_READ)
COPY_GREW = (*COPIED, ("write", "app.log.bak", [b"c"]))
BOTH_GREW = (*COPY_GREW, ("write", "app.log", [b"d"]))
RENAMED = (("write", "app.log", [b"a"]), ("read", 0), ("rename", "app.log", "app.1.log"), ("restart", 0), ("read", 0))
REPLACED = (
    ("write", "app.log", [BEGINNING, b"a"]), *BOTH_READ, ("restart", 0), ("restart", 1), ("remove", "app.log"),
    ("write", "app.log", [BEGINNING, b"b", b"c"]),
)  # fmt: skip

RULES: dict[str, tuple[tuple[tuple[Any, ...], ...], str, Callable[[pytest.MonkeyPatch], None]]] = {
    "an id has nothing of the log's name": (
        MOVED, "doubled", lambda patch: patch.setattr(
            foreign_columns, "_with_places", ids_by(lambda block, record, offset: block.identity.encode())
        ),
    ),
    "an id covers the record": (
        ALIKE, "lost", lambda patch: patch.setattr(foreign_columns, "_with_places", ids_by(before)),
    ),
    "an id covers what stands before the record": (
        TICKS, "lost", lambda patch: patch.setattr(
            foreign_columns, "_with_places", ids_by(lambda block, record, offset: record)
        ),
    ),
    "the longest of copies is read": (
        COPY_GREW, "lost", lambda patch: patch.setattr(TrackedFile, "reach", lambda file: (0, file.packed, 0)),
    ),
    "a copy is compared again": (
        BOTH_GREW, "lost", lambda patch: patch.setattr(same_beginnings.Alike, "_differ", lambda *files, **how: False),
    ),
    "what cannot be told apart is told": (
        ALIKE, "nobody was told", lambda patch: patch.setattr(follower, "ProblemReporter", Untold),
    ),
    "a position is proved": (
        REPLACED, "lost", lambda patch: [
            patch.setattr(room, "proof_of", lambda data: bytes(16)) for room in (same_beginnings, reading)
        ],
    ),
    "a log is known under another name": (
        RENAMED, "read again", lambda patch: patch.setattr(
            same_beginnings.Alike, "recognise", lambda alike, file, head: head.identity
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule_", RULES)
def test_each_rule_holds_and_is_missed(rule_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, said, without = RULES[rule_]
    play(*script)
    without(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        play(*script)
