"""A small deployment whose directory has all kinds of durable files, and the truth that they must tell.

Two datacentres read the same clicks; ``write`` adds clicks and their queries, and some clicks whose query comes
later. Numbers stand in the files alone, so who unpacks a directory knows what was written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

import photon
from photon.eventid import EventIds
from photon.library import Output
from photon.tables import Tables
from tests.integration.commands import Detached, Result, running, until
from tests.integration.commands import photon as command

HOST = "127.29.7.1"
"""Addresses stand in the registry's files, too: one of this machine that nothing else listens on."""
PLACE = Path("/tmp/photon-upgrade")
"""So do absolute paths of logs, in the event store's: data is unpacked where it was made."""
CONFIG = f"""\
key_file = "key"
[join.clicks]
identical_copies = true
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "id"
time = {{ field = "t", unit = "s" }}
[output]
copies = 2
roll_size = "8KiB"
roll_age = "5s"
[tables]
file = "tables.db"
[registry]
shards = 2
[registry.replicas.r1]
address = "{HOST}:7501"
directory = "r1"
datacentre = "east"
[compute.counts]
file = "counts.py"
state = "compute/counts"
address = "{HOST}:7560"
"""
PIPELINE = f"""\
[datacentre.{{0}}]
together = true
join = "clicks"
primary = "{{0}}/queries"
foreign = "{{0}}/clicks"
output = "{{0}}/output"
state = "{{0}}/state"
eventstore = "{HOST}:75{{1}}1"
dispatcher = "{HOST}:75{{1}}2"
verifier = "{HOST}:75{{1}}3"
copies = "{HOST}:75{{1}}4"
joiners.{{0}}-1.address = "{HOST}:75{{1}}5"
"""
COUNTS = """\
from photon.computing import Computation, Topology


class Count(Computation):
    def process_record(self, ctx, record):
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.produce("counts", {"key": ctx.key, "n": ctx.state["n"]})


topology = Topology("counts")
topology.add(Count(), {topology.joined("photon.toml"): lambda record: record.value["primary"]["q"][-1]}, ["counts"])
topology.publish("counts", "streams/counts")
"""
DATACENTRES = ("east", "west")
T_S = 1_760_000_000
WAITING = "waiting"
"""File with the numbers of clicks whose queries were not written yet."""
REGISTRY, BACKUP = "registry r1", "backup"
WAIT_S = 300.0


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """PLACE, empty, for one process of this machine at a time."""
    with open(f"{PLACE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        yield PLACE
        shutil.rmtree(PLACE)


class Site(Detached):
    """The deployment in ``base``."""

    def __init__(self, base: Path) -> None:
        super().__init__(base / "photon.toml")
        self.base = base

    def make(self) -> None:
        self.file.write_text(CONFIG + "".join(PIPELINE.format(name, n) for n, name in enumerate(DATACENTRES, 2)))
        (self.base / "counts.py").write_text(COUNTS)
        (self.base / "key").write_bytes(b"k" * 32)
        (self.base / "key").chmod(0o600)
        for name in DATACENTRES:
            for stream in ("queries", "clicks"):
                (self.base / name / stream).mkdir(parents=True)

    # -- events ------------------------------------------------------------------------------------------------------
    def clicks(self) -> list[int]:
        """Numbers of all that were written."""
        lines = (self.base / "east/clicks/a.log").read_bytes().splitlines()
        return [int(each["id"][1:]) for each in map(orjson.loads, filter(lambda line: line[:1] == b"{", lines))]

    def waiting(self) -> list[int]:
        path = self.base / WAITING
        return list(map(int, path.read_text().split())) if path.exists() else []

    def write(self, count: int, *, without: int = 0) -> None:
        """Further clicks, the queries of those that waited, and of all but ``without`` of the new ones."""
        first = len(self.clicks()) if (self.base / "east/clicks/a.log").exists() else 0
        numbers, late = range(first, first + count), self.waiting()
        (self.base / WAITING).write_text(" ".join(map(str, numbers[count - without :])))
        for name in DATACENTRES:
            with open(self.base / name / "queries/a.log", "ab") as queries:
                for n in (*late, *numbers[: count - without]):
                    queries.write(b'{"q":"q%05d","words":"words %05d"}\n' % (n, n))
            with open(self.base / name / "clicks/a.log", "ab") as clicks:
                clicks.write(b"no record %d\n" % first)
                for n in numbers:
                    clicks.write(b'{"id":"c%05d","q":"q%05d","t":%d}\n' % (n, n, T_S + n))

    def joinable(self) -> dict[str, str]:
        """Event id -> words of its query."""
        late = set(self.waiting())
        return {f"c{n:05d}": f"words {n:05d}" for n in self.clicks() if n not in late}

    # -- processes ---------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.up()
            yield
        finally:
            ended = self.down()
        assert ended.code == 0, ended.err

    def run(self, *words: str | Path, code: int = 0) -> Result:
        done = command(*words, "--config", self.file)
        assert done.code == code, f"{words}: {done.out}{done.err}"
        return done

    def settled(self) -> bool:
        """All that can be joined is, is computed, and verified."""
        count = len(self.joinable())
        return len(self.joined()) >= count <= len(self.computed()) and all(map(self._verified, DATACENTRES))

    def _verified(self, name: str) -> bool:
        said = command("status", "verifier", "--config", self.file, "--datacentre", name, "-o", "json")
        if said.code:
            return False
        slots: list[dict[str, Any]] = json.loads(said.out)["slots"]
        return all(s["published"] == s["cleared"] == s["checked"] and not s["owned"] for s in slots)

    def settle(self) -> None:
        """Waits until it has come to rest, then reads by all ways that keep a cursor."""
        until(self.settled, WAIT_S, "all is joined, verified and computed")
        with Tables.open(self.base / "tables.db") as tables:
            for name in DATACENTRES:
                tables.load(Output.of_deployment(self.file, name), _count, name=name)
        for name in DATACENTRES:
            at = ("--datacentre", name)
            self.run("sink", "parquet", *at, "--into", self.base / "lake" / name)
            read = self.run("read", *at, "--cursor", self.base / f"{name}.cursor")
            with open(self.base / f"{name}.read", "a") as seen:
                seen.writelines(f"{json.loads(line)['event_id']}\n" for line in read.out.splitlines())
        self.run("registry", "verify")
        with EventIds("10.0.0.7", 7, state=self.base / "ids.mark") as ids, open(self.base / "ids", "a") as made:
            made.write(f"{ids.next()}\n")

    def restore(self) -> None:
        """Gives the registry a new directory, of a backup: its files begin with a snapshot. Nothing runs."""
        (self.base / "r1").rename(self.base / "r1.old")
        self.run("registry", "restore", self.base / BACKUP, "--yes")
        with running("serve", "registry", "r1", "--config", self.file, log=self.base / "r1.log"):
            self.run("status", "registry", "--wait")
            self.run("registry", "restore", "--register-again", "--yes")
            self.run("registry", "restore", "--open", "--yes")

    # -- what came out -----------------------------------------------------------------------------------------------
    def joined(self) -> list[tuple[str, str]]:
        """(event id, words) of every record of both datacentres."""
        found = [each for name in DATACENTRES for each in photon.read(self.file, datacentre=name)]
        return [(each.event_id, each.primary["words"]) for each in found]

    def computed(self) -> list[tuple[str, int]]:
        """(key, its count) of every record of the computation."""
        stream = self.base / "streams/counts"
        if not (stream / ".photon").exists():
            return []
        return [(each.foreign["key"], each.foreign["n"]) for each in photon.read(stream)]

    def check(self) -> None:
        """Everything against the truth."""
        truth = self.joinable()
        assert sorted(self.joined()) == sorted(truth.items())
        keys = Counter(event_id[-1] for event_id in truth)
        assert sorted(self.computed()) == sorted((key, n) for key, count in keys.items() for n in range(1, count + 1))
        with Tables.open(self.base / "tables.db") as tables, tables.snapshot() as now:
            total = now.table("totals").row("joined").get("n")
            assert (sorted(row.key for row in now.table("clicks").scan()), total) == (sorted(truth), len(truth))
        self.run("table", "verify")
        seen = [each for name in DATACENTRES for each in (self.base / f"{name}.read").read_text().split()]
        assert sorted(seen) == sorted(truth)
        assert self.sunk() == sorted(truth)
        ids = (self.base / "ids").read_text().split()
        assert ids == sorted(set(ids))
        assert command("registry", "verify", self.base / BACKUP).code == 0

    def sunk(self) -> list[str]:
        import pyarrow.parquet as parquet

        files = sorted((self.base / "lake").rglob("*.parquet"))
        return sorted(each for file in files for each in parquet.read_table(file).column("event_id").to_pylist())


def _count(txn: Any, record: Any) -> None:
    txn.table("clicks").row(record["event_id"]).set("words", record["primary"]["words"])
    total = txn.table("totals").row("joined")
    total.set("n", (total.get("n") or 0) + 1)
