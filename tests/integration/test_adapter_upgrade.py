"""An adapter whose new version gives other ids is refused before it asks for any: in two datacentres, on Spark, and
in ``photon join``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from photon.config.loader import load
from photon.fleet.ledger import read_ledger
from photon.lab.demo.check import records
from photon.spark.verify.verdict import fingerprint
from photon.supervision.ports import free_row
from tests.deployments import datacentre, replica, write
from tests.integration.commands import Result, photon, running, until
from tests.integration.forked import Process
from tests.unit.spark.recover.rows import write_report

CLICKS = 20
KINDS = ("eventstore", "joiner", "verifier", "dispatcher")  # each in a process of its own, as it calls the adapter
WAIT_S = 120.0
REFUSED = "the adapter now derives another id: 'c0' before and 'C0' now, from the record "
JOIN = """
[join.clicks]
adapter = "{code}:Clicks"
"""
ADAPTER = """
import json
from photon.adapters.contract import Adapter, ForeignHeader
class Clicks(Adapter):
    def foreign_header(self, record, file):
        said = json.loads(record)
        return ForeignHeader(said["q"].encode(), said["t"] * 10**9, said["c"]{more}.encode())
    def primary_key(self, record, file):
        return json.loads(record)["q"].encode()
    def foreign_payload(self, record, file):
        return record
    primary_payload = foreign_payload
"""


def version(base: Path, number: int) -> None:
    (base / f"v{number}.py").write_text(ADAPTER.format(more="" if number == 1 else ".upper()"))


def logs(primary: Path, foreign: Path) -> None:
    for directory in (primary, foreign):
        directory.mkdir(parents=True, exist_ok=True)
    (primary / "q.log").write_text("".join(f'{{"q":"q{n}"}}\n' for n in range(CLICKS)))
    lines = "".join(f'{{"c":"c{n}","q":"q{n}","t":{1_760_000_000 + n}}}\n' for n in range(CLICKS))
    (foreign / "c.log").write_text(lines)


class Site:
    """A registry and two datacentres, with a file for each version of the adapter."""

    def __init__(self, base: Path) -> None:
        self.base = base
        first = free_row(200)  # the parts are at ports above their datacentre's
        free = (f"127.0.0.1:{first + above}" for above in (0, 1, 101))
        names, registry = ("east", "west"), replica(next(free))
        whole = [datacentre(free, name=name, base=f"{name}/", whole=True) for name in names]
        for number in (1, 2):
            version(base, number)
            write(base, JOIN.format(code=f"v{number}.py"), registry, *whole).rename(base / f"v{number}.toml")
        for name in ("east", "west"):
            logs(base / name / "queries", base / name / "clicks")

    def log(self, name: str) -> Path:
        return self.base / name / "log"

    def command(self, name: str, number: int, kind: str) -> tuple[str | Path, ...]:
        return "serve", kind, "--config", self.base / f"v{number}.toml", "--datacentre", name

    @contextmanager
    def started(self, name: str) -> Iterator[list[Process]]:
        begun = self.served(name)
        with ExitStack() as ending:
            started = [
                ending.enter_context(running(*self.command(name, 1, kind), log=self.log(name))) for kind in KINDS
            ]
            until(lambda: self.served(name) > begun, WAIT_S, f"{name} serves")
            yield started

    def served(self, name: str) -> int:
        return self.log(name).read_text().count("dispatcher serves") if self.log(name).exists() else 0

    def refuses(self, name: str, kind: str) -> None:
        refused(photon(*self.command(name, 2, kind)))

    def lose_position(self, name: str) -> None:
        """Everything in the logs would be asked for again."""
        for path in (self.base / name / "state").glob("dispatcher.db*"):
            path.unlink()

    def joined(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for name in ("east", "west"):
            found.update(record["event_id"] for record in records(self.base / name / "output" / "joined"))
        return found


def refused(done: Result) -> None:
    assert done.code == 2, done.err
    assert REFUSED in done.err


def stop(processes: list[Process]) -> None:
    for process in reversed(processes):
        process.terminate()
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize("order", [("west", "east"), ("east", "west")])
def test_no_datacentre_takes_other_ids(tmp_path: Path, order: tuple[str, str]) -> None:
    site = Site(tmp_path)
    with ExitStack() as running_now:
        start = running_now.enter_context
        start(running("serve", "registry", "r1", "--config", tmp_path / "v1.toml", log=tmp_path / "registry.log"))
        processes = {name: start(site.started(name)) for name in ("east", "west")}
        until(lambda: len(site.joined()) == CLICKS, WAIT_S, "all are joined")
        for name in order:
            stop(processes[name])
            site.refuses(name, "dispatcher")
        site.lose_position(order[0])
        site.refuses(order[0], "dispatcher")
        processes = {name: start(site.started(name)) for name in order}
        until(lambda: not read_ledger(tmp_path / order[0] / "state")["pending"], WAIT_S, "it is decided")
        for process in processes.values():
            stop(process)
    assert site.joined() == {f"c{n}": 1 for n in range(CLICKS)}


def test_in_any_order_each_process_and_spark_refuse(tmp_path: Path) -> None:
    site = Site(tmp_path)
    hour = ("--from", "2025-10-09T08", "--to", "2025-10-09T09")
    deployment = fingerprint(load(tmp_path / "v2.toml", environment={}), (tmp_path / "key").read_bytes())
    report = write_report(tmp_path / "report", [], deployment=deployment)
    with ExitStack() as running_now:
        start = running_now.enter_context
        start(running("serve", "registry", "r1", "--config", tmp_path / "v1.toml", log=tmp_path / "registry.log"))
        processes = [start(site.started(name)) for name in ("east", "west")]
        until(lambda: len(site.joined()) == CLICKS, WAIT_S, "all are joined")
        stop(processes[1])
        site.lose_position("west")
        for kind in (*KINDS, *reversed(KINDS)):
            site.refuses("west", kind)
        with ThreadPoolExecutor(len(KINDS)) as at_once:
            list(at_once.map(partial(site.refuses, "west"), KINDS))
        for command, *more in (
            ("verify", *hour, "--report", tmp_path / "verified"),
            ("recover", "--report", report, "--yes"),
            ("backfill", *hour, "--datacentre", "west", "--output", tmp_path / "backfilled"),
        ):
            refused(photon("spark", command, "--config", tmp_path / "v2.toml", *more))
    assert site.joined() == {f"c{n}": 1 for n in range(CLICKS)}


@pytest.mark.parametrize("lost", [False, True])
def test_a_join_takes_no_other_ids(tmp_path: Path, lost: bool) -> None:
    for number in (1, 2):
        version(tmp_path, number)
        (tmp_path / f"v{number}.toml").write_text(JOIN.format(code=f"v{number}.py"))
    logs(tmp_path / "queries", tmp_path / "clicks")
    given = (
        "--primary",
        tmp_path / "queries",
        "--foreign",
        tmp_path / "clicks",
        "--output",
        tmp_path / "out",
        "--once",
    )
    first = photon("join", "--config", tmp_path / "v1.toml", *given)
    assert first.code == 0, first.err
    if lost:
        (tmp_path / "out" / ".photon" / "dispatcher.db").unlink()
    second = photon("join", "--config", tmp_path / "v2.toml", *given)
    assert second.code == 2, second.err
    assert REFUSED in second.err
    third = photon("join", "--config", tmp_path / "v1.toml", *given)
    assert third.code == 0, third.err
    ids = [record["event_id"] for record in records(tmp_path / "out" / "joined")]
    assert sorted(ids) == sorted(f"c{n}" for n in range(CLICKS))
