"""A hostile world: a short history of runs of ``photon join`` over one pair of logs, with drawn acts between them.

A world is a list of steps, each with its own number that draws its action: leaving out a step does not change the
draws of the others, so a failing history can be reduced to the necessary steps.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.integration.commands import Result, photon
from tests.integration.forked import FIRST, Process, begin
from tests.integration.hostile.oracle import SHAPES, Broken, File, Oracle, published, written

EPOCH_US = 1_760_000_000_000_000
DAY_US = 86_400_000_000
KINDS = ("joined", "unmatched", "filtered", "rejected", "late")
SIDES = {"primary": "q.log", "foreign": "c.log"}
RESTING_S = 3600
# For a run, and half of it for one told to end; more where the machine is busy.
PATIENCE_S = float(os.environ.get("PHOTON_PATIENCE", 120))
# Runs first in a process whose clock is ``{0}`` seconds ahead; gRPC, half of which is not Python, keeps its clock.
SHIFTED = """
import sys, time
now, now_ns = time.time, time.time_ns
def grpc():
    return sys._getframe(2).f_globals.get("__name__", "").startswith("grpc")
time.time = lambda: now() + (0 if grpc() else {0})
time.time_ns = lambda: now_ns() + {0} * 10**9
"""
REFUSED = (1, 2)


class Step(NamedTuple):
    act: str
    number: int

    def __str__(self) -> str:
        return f"{self.act}:{self.number}"


# Possible acts between two runs, with their weights.
ACTS = {
    "again": 5,  # an id once more: near, a day apart, equal bytes
    "rotate": 4,  # to .1, the older ones perhaps to gz
    "truncate": 2,  # copied away, or not, and cut to nothing
    "torn": 3,  # a last line whose rest comes later, or never
    "alike": 3,  # a log is replaced by one with the same first record
    "state": 3,  # lost, or of another age than the output
    "output": 2,  # the same, the other way round
    "restore": 1,  # both together from one older copy
    "part": 3,  # one directory of the state, lost or older
    "archive": 1,  # final output files are moved away
    "clock": 2,  # the following runs have another time
}
RUNS = {"run": 6, "killed": 3, "followed": 1}


def draw(seed: int, rounds: int, acts: Sequence[str] = tuple(ACTS)) -> list[Step]:
    """The steps of a seed's world."""
    random = Random(seed)
    weights = [ACTS[act] for act in acts]
    names = ["append"]
    for _ in range(rounds):
        names += random.choices(acts, weights, k=random.choice((0, 1, 1, 2, 3))) if acts else []
        names += ["append"] if random.random() < 0.7 else []
        names += random.choices(list(RUNS), list(RUNS.values()))
    return [Step(name, random.randrange(1 << 30)) for name in (*names, "run", "end")]


def parsed(text: str) -> list[Step]:
    """Steps as a story names them."""
    pairs = (each.partition(":") for each in text.split())
    return [Step(act, int(number)) for act, _, number in pairs]


@dataclass
class Kept:
    """A copy of the output with its state, and the oracle's knowledge then."""

    path: Path
    oracle: Oracle
    published: dict[str, int]
    content: dict[str, bytes]


def sockets(directory: str, names: Sequence[str]) -> list[str]:
    """Sockets left by a killed run, which cannot be copied."""
    return [name for name in names if (Path(directory) / name).is_socket()]


def copied(source: Path, target: Path) -> None:
    """A directory that a just-killed process, or one of its children, may still change."""
    for _ in range(20):
        try:
            shutil.copytree(source, target, ignore=sockets)
            return
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target, ignore_errors=True)
            time.sleep(0.2)
    raise AssertionError(f"{source} does not come to rest")


class World:
    """Directories below ``base``, and the acts done to them."""

    def __init__(self, base: Path, seed: int, *, timed: bool = True) -> None:
        """``timed`` false: the configuration names no event time."""
        random = Random(seed)
        self.base, self.output, self.archive = base, base / "out", base / "archive"
        self.state = self.output / ".photon"
        self.logs = {side: base / side for side in SIDES}
        for directory in self.logs.values():
            directory.mkdir(parents=True)
        self.shape = SHAPES[random.choice(list(SHAPES))]
        roll = random.choice(("3KiB", "12KiB", "128MiB"))
        form = Random(f"{seed} form").choice(("none", "gzip"))
        self.config = base / "join.toml"
        self.config.write_text(
            f'[output]\nroll_size = "{roll}"\ncompress = "{form}"\n[join.x]\nmissing_logs = "forget"\n'
            f'[join.x.primary]\n{self.shape.primary}\nkey = "key"\n'
            f'[join.x.foreign]\n{self.shape.foreign}\nkey = "key"\nid = "id"\n'
            + ('time = { field = "at", unit = "us" }\n' if timed else "")
        )
        self.oracle = Oracle(self.shape, timed=timed)
        self.clicks: list[dict[str, str]] = []
        self.keys, self.late = 0, [0]  # keys drawn so far, and those whose primary has not come
        self.rest = {"primary": b"", "foreign": b""}  # missing part of a torn last line
        self.kept: list[Kept] = []
        self.published: dict[str, int] = {}
        self.content: dict[str, bytes] = {}
        self.took_s = 2.0
        self.odd = False  # a run may say that something waits or was not read
        self.shift_s = self.ahead_s = 0  # current clock of runs, and the furthest of those before
        self.story = [f"{self.shape.name}, roll_size {roll}"]

    # -- logs ------------------------------------------------------------------------------------------------------
    def do(self, step: Step) -> None:
        """Raises Broken."""
        getattr(self, f"act_{step.act}")(Random(step.number))

    def tell(self, said: str) -> None:
        self.story.append(said)

    def path(self, side: str) -> Path:
        return self.logs[side] / SIDES[side]

    def write(self, side: str, data: bytes) -> None:
        """Appends, after completing a torn last line or writing the header of a new file."""
        path = self.path(side)
        if not path.exists() or path.stat().st_size == 0:
            data = self.shape.header[side] + data
        elif self.rest[side]:
            data = self.rest[side] + data
        self.rest[side] = b""
        with path.open("ab") as log:
            log.write(data)
        os.utime(path)

    def lines(self, random: Random, many: int) -> tuple[bytes, bytes]:
        """Primary lines, and ``many`` foreign ones: some name a primary that comes late, or never."""
        primary, foreign = [], []
        for key in [key for key in self.late if random.random() < 0.5]:
            self.late.remove(key)
            primary.append(self.primary(key, random))
        for _ in range(many):
            luck = random.random()
            self.keys += 1
            if luck < 0.12:
                self.late.append(self.keys)
            elif luck > 0.05:
                primary.append(self.primary(self.keys, random))
                if random.random() < 0.08:
                    primary.append(self.primary(self.keys, random))
            foreign.append(self.click(random, self.keys))
            if random.random() < 0.04:
                foreign.append(random.choice((b"nonsense", b"\xff\xfe", b"17,q1", b'{"id": "c', b"\0" * 40)) + b"\n")
        random.shuffle(primary)
        return b"".join(primary) or self.primary(0, random), b"".join(foreign)

    def primary(self, key: int, random: Random) -> bytes:
        return written(self.shape, "primary", {"key": f"q{key}", "text": f"t{random.randrange(10**9)}"})

    def click(self, random: Random, key: int) -> bytes:
        number = len(self.clicks) + 1
        at = EPOCH_US + number * 1_000_003
        click = {"at": str(at), "key": f"q{key}", "note": "n" * random.randrange(9), "id": f"c{number}"}
        self.clicks.append(click)
        return written(self.shape, "foreign", click)

    def act_append(self, random: Random) -> None:
        primary, foreign = self.lines(random, random.randint(8, 40))
        self.write("primary", primary)
        self.write("foreign", foreign)
        self.tell("append: more of both logs")

    def act_again(self, random: Random) -> None:
        """Existing ids, some in one batch together."""
        if not self.clicks:
            return
        self.write("foreign", self.click(random, max(self.keys - 1, 1)))
        for click in random.choices(self.clicks, k=random.randint(1, 8)):
            other = dict(click)
            apart = random.choice((0, 1, -1_000_000, 3_600_000_000, DAY_US, -DAY_US, 9 * DAY_US))
            other["at"] = str(int(click["at"]) + apart)
            if random.random() < 0.2:
                other["key"] = f"q{random.randint(1, self.keys)}"
            self.write("foreign", written(self.shape, "foreign", other) * random.choice((1, 1, 2)))
            self.tell(f"again: {other['id']} {apart / 1e6:+g} s, {other['key']}")

    def shift(self, side: str, random: Random, *, copied: bool = False) -> None:
        """The log to .1, older ones further, perhaps as gz."""
        base = self.path(side)
        for number in range(9, 0, -1):
            for end in ("", ".gz"):
                old = base.with_name(f"{base.name}.{number}{end}")
                if old.exists():
                    new = old.with_name(f"{base.name}.{number + 1}{end}")
                    old.rename(new)
                    if end == "" and random.random() < 0.5:
                        self.pack(new, random)
        if base.exists():
            rolled = base.with_name(f"{base.name}.1")
            (shutil.copy2 if copied else os.rename)(base, rolled)
            if random.random() < 0.2:
                self.pack(rolled, random)
        self.rest[side] = b""

    def pack(self, path: Path, random: Random) -> None:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        if random.random() < 0.8:  # else it is just being compressed
            path.unlink()

    def act_rotate(self, random: Random) -> None:
        side = random.choice(list(SIDES))
        self.shift(side, random)
        self.fresh(side, random)
        self.tell(f"rotate: {side}")

    def fresh(self, side: str, random: Random) -> None:
        """A few first lines of a new file."""
        primary, foreign = self.lines(random, random.randint(1, 12))
        self.write("primary", primary)
        if side == "foreign" or random.random() < 0.5:
            self.write("foreign", foreign)

    def act_truncate(self, random: Random) -> None:
        side = random.choice(list(SIDES))
        if not (path := self.path(side)).exists():
            return
        copied = random.random() < 0.6
        if copied:
            self.shift(side, random, copied=True)
        os.truncate(path, 0)
        self.rest[side] = b""
        self.fresh(side, random)
        self.tell(f"truncate: {side}, {'copied before' if copied else 'no copy'}")

    def act_torn(self, random: Random) -> None:
        side = random.choice(list(SIDES))
        self.write(side, b"")
        line = (
            self.click(random, random.randint(1, self.keys))
            if side == "foreign"
            else self.primary(self.late.pop() if self.late else self.keys, random)
        )
        cut = random.choice((random.randint(1, len(line) - 1), len(line) - 1, len(line) - 2))
        self.write(side, line[:cut])
        how = random.choice(("fresh", "fresh", "aged", "rolled"))
        self.rest[side] = line[cut:]
        if how == "aged":  # its writer died; the next one continues after it, or on a new line
            then = time.time() - RESTING_S
            os.utime(self.path(side), (then, then))
            self.rest[side] = random.choice((line[cut:], b"\n", b""))
        elif how == "rolled":
            self.shift(side, random)
            self.fresh(side, random)
        self.tell(f"torn: {side} ends in {line[:cut]!r}, {how}")

    def act_alike(self, random: Random) -> None:
        """Another log under the old one's name, with the same first record; the old one is gone or rolled."""
        side = random.choice(list(SIDES))
        path = self.path(side)
        if not path.exists() or path.stat().st_size == 0:
            return
        old = path.read_bytes()
        header = self.shape.header[side]
        first = old[len(header) :].partition(b"\n")[0] + b"\n"
        primary, foreign = self.lines(random, random.choice((1, 5, 60)))
        same = random.random() < 0.3  # diverges late from the old one
        rolled = random.random() < 0.4
        if rolled:
            self.shift(side, random)
        lines = old[len(header) :].split(b"\n")
        begin = b"".join(line + b"\n" for line in lines[: len(lines) // 2]) if same and len(lines) > 3 else first
        new = header + begin + (primary if side == "primary" else foreign)
        if side == "foreign":
            self.write("primary", primary)
        elif not rolled and random.random() < 0.5:
            self.write("foreign", foreign)
        self.rest[side] = b""
        if random.random() < 0.5:
            path.write_bytes(new)
        else:
            path.with_name("new").write_bytes(new)
            path.with_name("new").replace(path)
        self.odd = self.odd or rolled
        self.tell(f"alike: {side}, {len(old)} bytes by {len(new)}, {'the old one rolled' if rolled else 'in place'}")

    # -- output and state --------------------------------------------------------------------------------------------
    def keep(self) -> None:
        path = self.base / f"kept-{len(self.story)}"
        copied(self.output, path)
        self.kept.append(Kept(path, copy.deepcopy(self.oracle), dict(self.published), dict(self.content)))

    def older(self, random: Random) -> Kept | None:
        """A copy since which ids were taken."""
        taken = {kept.path: len(kept.oracle.verdicts) for kept in self.kept}
        now = len(self.oracle.verdicts)
        found = [kept for kept in self.kept if taken[kept.path] < now and kept.path.exists()]
        return random.choice(found) if found else None

    def act_state(self, random: Random) -> None:
        """Without its state, or with an older one, nothing is written to an output."""
        older = self.older(random)
        lost = random.random() < 0.4
        if not self.oracle.verdicts or (older is None and not lost):
            return
        right = self.base / "right"
        self.state.rename(right)
        if not lost and older is not None:
            copied(older.path / ".photon", self.state)
        what = "lost" if lost else "older"
        self.tell(f"state: {what}")
        self.refused(f"the state is {what}", random)
        shutil.rmtree(self.state, ignore_errors=True)
        right.rename(self.state)

    def act_output(self, random: Random) -> None:
        """Nor is anything written after an older output."""
        older = self.older(random)
        lost = random.random() < 0.3
        if not self.oracle.verdicts or self.archive.exists() or (older is None and not lost):
            return
        right = self.base / "right"
        right.mkdir()
        for kind in KINDS:
            if (self.output / kind).exists():
                (self.output / kind).rename(right / kind)
            if not lost and older is not None and (older.path / kind).exists():
                copied(older.path / kind, self.output / kind)
        what = "lost" if lost else "older"
        self.tell(f"output: {what}")
        state = self.base / "state"
        copied(self.state, state)
        self.refused(f"the output is {what}", random)
        for kind in KINDS:
            shutil.rmtree(self.output / kind, ignore_errors=True)
            if (right / kind).exists():
                (right / kind).rename(self.output / kind)
        right.rmdir()
        shutil.rmtree(self.state)
        state.rename(self.state)

    def act_restore(self, random: Random) -> None:
        """State and output together are an older world: it continues from there."""
        older = self.older(random)
        if older is None or self.archive.exists():
            return
        shutil.rmtree(self.output)
        copied(older.path, self.output)
        self.oracle = copy.deepcopy(older.oracle)
        self.published, self.content = dict(older.published), dict(older.content)
        self.kept = self.kept[: self.kept.index(older) + 1]
        self.tell(f"restore: {older.path.name}")

    def act_part(self, random: Random) -> None:
        """One part of the state is lost or older: it is refused, or the output is right all the same."""
        older = self.older(random)
        part = random.choice(("dispatcher.db", "eventstore", "exports", "registry", "slots", "key"))
        lost = older is None or random.random() < 0.5
        if not self.state.exists():
            return
        right = self.base / "right"
        copied(self.state, right)
        for path in self.state.glob(f"{part}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if older is not None and not lost:
            for path in (older.path / ".photon").glob(f"{part}*"):
                target = self.state / path.name
                copied(path, target) if path.is_dir() else shutil.copy2(path, target)
        self.tell(f"part: {part} {'lost' if lost else 'older'}")
        before = self.tree()
        result = self.command(random)
        if result.code in REFUSED:
            self.is_refusal(f"{part} is of another age", result, before)
            shutil.rmtree(self.state)
            right.rename(self.state)
            return
        shutil.rmtree(right)
        if part == "dispatcher.db":
            self.oracle.dispatcher_lost()
        self.check(result, keep=self.keeping)

    def act_archive(self, random: Random) -> None:
        manifests = sorted(self.state.glob("slots/*/manifest.jsonl"))
        listed = {line for path in manifests for line in path.read_bytes().split(b"\n")[:-1]}
        for path in sorted(self.output / json.loads(line)["file"] for line in listed):
            plain = path.with_suffix("") if path.suffix == ".gz" else None
            if path.exists() and not (plain and plain.exists()) and random.random() < 0.6:
                target = self.archive / path.relative_to(self.output)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
                self.tell(f"archive: {path.name}")

    def act_clock(self, random: Random) -> None:
        self.shift_s = random.choice((0, 0, 3600, 86_400, 40 * 86_400, -600, -86_400, -10 * 86_400))
        (self.base / "clock.py").write_text(SHIFTED.format(self.shift_s))
        self.tell(f"clock: {self.shift_s:+} s")

    def environment(self) -> dict[str, str]:
        return {FIRST: str(self.base / "clock.py")} if self.shift_s else {}

    # -- runs ------------------------------------------------------------------------------------------------------
    def view(self, side: str) -> dict[str, File]:
        """Current contents of the logs; for a file being compressed, the plain one."""
        found = {}
        for path in sorted(self.logs[side].iterdir()):
            packed = path.suffix == ".gz"
            if packed and path.with_suffix("").exists():
                continue
            data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
            resting = path.name != SIDES[side] or path.stat().st_mtime < time.time() + self.shift_s - RESTING_S / 2
            found[path.name] = File(data, resting)
        return found

    def arguments(self, *more: str) -> list[str | Path]:
        sides = [each for side in SIDES for each in (f"--{side}", self.logs[side])]
        base = [
            "join",
            *sides,
            "--output",
            self.output,
            "--config",
            self.config,
            "-o",
            "json",
            "--max-rejected",
            "99999",
        ]
        return [*base, *more]

    def command(self, random: Random) -> Result:
        """A run to its end."""
        self.keeping = random.random() < 0.5
        self.oracle.show(self.view("primary"), self.view("foreign"))
        began = time.monotonic()
        arguments = self.arguments("--once", *(["--keep-pending"] if self.keeping else []))
        try:
            result = photon(*arguments, timeout=PATIENCE_S, env=self.environment())
        except subprocess.TimeoutExpired as late:
            raise Broken(f"did not end: {late}") from None
        self.back = self.shift_s < self.ahead_s
        self.ahead_s = max(self.shift_s, self.ahead_s)
        self.took_s = time.monotonic() - began
        self.tell(f"  -> exit {result.code} {result.out.strip()} {result.err.strip()[:1500]}")
        if "Traceback" in result.err:
            raise Broken(f"a traceback: {result.err}")
        if result.code != 0 and self.renamed(result.err):
            self.look(keep=self.keeping, ledger=None)
            return self.command(random)
        return result

    def renamed(self, said: str) -> bool:
        """True if a run asked for other names for logs that are identical as far as both go; they have them now."""
        asked = re.findall(r"([cq][0-9]*\.log\S*): has the same log name and, as far", said)
        for name in set(asked):
            path = self.logs["primary" if name[0] == "q" else "foreign"] / name
            path.rename(path.with_name(f"{name[0]}{len(self.story)}.log{'.gz' if path.suffix == '.gz' else ''}"))
            self.tell(f"renamed: {name}")
        return bool(asked)

    def act_run(self, random: Random) -> None:
        self.tell("run")
        self.check(self.command(random), keep=self.keeping)
        self.keep()

    def check(self, result: Result, *, keep: bool) -> None:
        """Checks a completed run."""
        waits = self.oracle.torn or self.oracle.torn_primary
        if result.code not in ((0, 3) if self.odd or self.back or waits or result.json["pending"] else (0,)):
            raise Broken(f"exit code {result.code}: {result.err}")
        if result.code == 3 and not result.err.strip():
            raise Broken("exit code 3 without a word")
        self.look(keep=keep, ledger=result.json, back=self.back)

    def look(self, *, keep: bool, ledger: dict[str, int] | None, back: bool = False) -> None:
        """Compares the output with the oracle, and with earlier published output."""
        content = self.read_output()
        whole: dict[str, list[bytes]] = {kind: [] for kind in KINDS}
        for name, data in content.items():
            whole[name.partition("/")[0]] += data.split(b"\n")[:-1]
        now = self.read_published()
        for name, length in self.published.items():
            if now.get(name, 0) < length:
                raise Broken(f"{name}: {length} bytes were published, now {now.get(name, 0)}")
            if content.get(name, b"")[:length] != self.content[name][:length]:
                raise Broken(f"{name}: published bytes are others now")
        for name, length in now.items():
            if len(content.get(name, b"")) < length:
                raise Broken(f"{name}: {length} bytes are published, {len(content.get(name, b''))} are there")
        self.published, self.content = now, content
        self.oracle.judge(whole, keep=keep, ledger=ledger, back=back)

    def read_output(self) -> dict[str, bytes]:
        """Name of an output file -> its contents, even if compressed or archived."""
        found: dict[str, bytes] = {}
        for root in (self.archive, self.output):
            for packed in (True, False):  # of both forms the plain one counts
                for path in sorted(root.glob("*/*.jsonl.gz" if packed else "*/*.jsonl")):
                    data = path.read_bytes()
                    name = str(path.relative_to(root)).removesuffix(".gz")
                    found[name] = gzip.decompress(data) if packed else data
        return found

    def read_published(self) -> dict[str, int]:
        places = [*self.state.glob("slots/*"), *self.state.glob("exports/*")]
        durable = [path.read_bytes() for place in places if (path := place / "durable.json").exists()]
        manifests = [path.read_bytes() for place in places if (path := place / "manifest.jsonl").exists()]
        return published(durable, manifests)

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator[Process]:
        """A run ended by a signal within the block: the logs were read, and no verdict is owed."""
        with (self.base / "stderr").open("wb") as err:
            process = begin(
                *self.arguments(*more),
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
                env={**os.environ, **self.environment()},
            )
        try:
            yield process
            process.wait(PATIENCE_S / 2)
        except subprocess.TimeoutExpired:
            raise Broken(f"did not end within {PATIENCE_S / 2:g} s of a signal") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = (self.base / "stderr").read_text()
        self.tell(f"  -> exit {process.returncode} {said.strip()[:1500]}")
        if "Traceback" in said:
            raise Broken(f"a traceback: {said}")

    def act_killed(self, random: Random) -> None:
        """Killed in the middle of a run; mostly with -9, with or without its children."""
        self.keeping = random.random() < 0.5
        after = random.uniform(0.3, 1.1) * self.took_s
        how = random.choice(("main", "group", "group", "int", "term"))
        self.oracle.show(self.view("primary"), self.view("foreign"))
        self.tell(f"killed: {how} after {after:.2f} s")
        number = {"int": signal.SIGINT, "term": signal.SIGTERM}.get(how, signal.SIGKILL)
        with self.running("--once", *(["--keep-pending"] if self.keeping else [])) as process:
            time.sleep(after)
            if process.poll() is None:
                (os.killpg if how == "group" else os.kill)(process.pid, number)
        self.look(keep=self.keeping, ledger=None)

    def act_followed(self, random: Random) -> None:
        """A run that follows the logs, which change meanwhile."""
        self.oracle.show(self.view("primary"), self.view("foreign"))
        self.tell("followed")
        with self.running() as process:
            for _ in range(random.randint(1, 3)):
                time.sleep(random.uniform(0.3, 1.5))
                (self.act_append if random.random() < 0.6 else self.act_rotate)(random)
                self.oracle.show(self.view("primary"), self.view("foreign"))
            time.sleep(random.uniform(0.0, 2.0))
            process.send_signal(random.choice((signal.SIGTERM, signal.SIGKILL)))
        self.look(keep=True, ledger=None)

    def act_end(self, random: Random) -> None:
        """Readers are given the files' contents."""
        if self.archive.exists():
            return
        result = photon("read", self.output)
        lines = [
            line for name, data in self.content.items() if name.startswith("joined/") for line in data.splitlines()
        ]
        if result.code != 0 or sorted(result.out.encode().splitlines()) != sorted(lines):
            raise Broken(
                f"photon read: exit {result.code}, {len(result.out.splitlines())} of {len(lines)}: {result.err}"
            )

    def tree(self) -> str:
        """All bytes of the output."""
        digest = hashlib.sha256()
        for kind in KINDS:
            for path in sorted((self.output / kind).rglob("*")):
                digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
        return digest.hexdigest()

    def refused(self, why: str, random: Random) -> None:
        """The next run must be refused."""
        before = self.tree()
        self.is_refusal(why, self.command(random), before)

    def is_refusal(self, why: str, result: Result, before: str) -> None:
        if self.tree() != before:
            raise Broken(f"{why}, and the output was changed (exit code {result.code}): {result.err}")
        if result.code not in REFUSED:
            raise Broken(f"{why}, and exit code {result.code}: {result.err}")
        if len(result.err.splitlines()) != 1:
            raise Broken(f"{why}, and it does not say so in one line: {result.err}")
