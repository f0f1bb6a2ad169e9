"""A topology over files: each record once in what is published, through restarts, several owners and faulty code."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import photon
from photon import compute
from photon.assembly.computing import Running, Site, load_topology, statuses
from photon.cli.main import main
from photon.computing import Computation, Context, Record, Timer, Topology
from photon.computing.journal import put_status
from photon.computing.links import Links
from photon.computing.publisher import Publisher
from photon.computing.wire import ENDED_NS, Ack, Item, Message, Watermark
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.metrics.readings import Readings
from photon.supervision.ports import free_ports
from tests.integration.commands import interrupt, running, until

DISK = RealDisk()


class Sum(Computation):
    """Keyed by name: what there is until the watermark."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["foreign"]["n"]
        ctx.set_timer("end", 1_000)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("sums", {"name": ctx.key, "sum": ctx.state.pop("sum")})


class Total(Computation):
    """Of all names: another key, maybe of another owner."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["sum"]
        ctx.set_timer("end", 1_000)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("totals", {"all": ctx.state["sum"], "waiting": timer.waiting})


def _topology(*, shared: bool = True) -> Topology:
    made = Topology("sums")
    joined = made.source("joined", shared=shared, deployment="in")
    made.add(Sum(), {joined: lambda record: record.value["foreign"]["name"]}, ["sums"])
    made.add(Total(), {"sums": lambda record: "all"}, ["totals"])
    for stream in ("sums", "totals"):
        made.publish(stream, stream)
    return made


def _feed(base: Path, numbers: range, slot: str = "s") -> None:
    publisher = Publisher(DISK, base / "in", slot)
    publisher.publish(
        Item(n, "", "", n, msgspec.msgpack.encode({"name": f"name {n % 7}", "n": n}), "in") for n in numbers
    )
    publisher.close()


def _read(path: Path) -> list[dict[str, int]]:
    return [each.foreign for each in photon.read(path)]


def test_a_program_computes_what_is_there(tmp_path: Path) -> None:
    _feed(tmp_path, range(100))
    done = compute.run(_topology(), state=tmp_path / "state", base=tmp_path, once=True)
    assert (done.records, done.late, done.aside) == (107, 0, 0)
    assert {each["name"]: each["sum"] for each in _read(tmp_path / "sums")} == {
        f"name {k}": sum(range(k, 100, 7)) for k in range(7)
    }
    assert _read(tmp_path / "totals") == [{"all": sum(range(100)), "waiting": 0}]
    again = compute.run(_topology(), state=tmp_path / "state", base=tmp_path, once=True)
    assert (again.records, len(_read(tmp_path / "totals"))) == (0, 1)
    (line,) = (tmp_path / "totals/.photon/verifier/watermarks.jsonl").read_text().splitlines()
    pair = json.loads(line)
    assert pair["exact_ns"] == ENDED_NS


@pytest.mark.parametrize("shared", [True, False])
def test_several_owners_send_one_another_what_they_do_not_own(tmp_path: Path, shared: bool) -> None:
    _feed(tmp_path, range(50))
    site = Site(_topology(shared=shared), tmp_path, tmp_path / "state")
    assert len(site.intervals(4).all) == 4
    running = Running(site, once=True)
    running.run(threading.Event())
    with pytest.raises(UsageError, match="another process runs sums there"):
        Running(site, once=True)
    running.close()
    assert _read(tmp_path / "totals") == [{"all": sum(range(50)), "waiting": 0}]
    assert sorted(each["name"] for each in _read(tmp_path / "sums")) == [f"name {k}" for k in range(7)]
    assert {each.interval for each in statuses(site.state)} == {"i0", "i1", "i2", "i3"}


def test_links_between_processes(tmp_path: Path) -> None:
    a, b = Links(tmp_path, ["a"], ["a", "b"]), Links(tmp_path, ["b"], ["a", "b"])
    message = Message("a", "b", 7, (Item(7, "sum", "k", 1, b"\xc0", "s"),), {"s": Watermark(1, 2, 3)})
    a.send("b", message)
    b.send("b", Ack("b", "b", 1))
    got: list[object] = []
    until(lambda: got.extend(b.received("b")) or len(got) == 2, 20, "both have come")
    assert message in got
    assert b.arrived.is_set()
    b.send("a", Ack("a", "b", 7))
    until(lambda: got.extend(a.received("a")) or got[-1] == Ack("a", "b", 7), 20, "the acknowledgement has come")
    a.send("nobody", message)  # is lost
    a.close()
    b.close()


FAULTY = """
from photon.computing import Computation, Topology


class Faulty(Computation):
    time_limit_s = 0.2

    def process_record(self, ctx, record):
        n = record.value["foreign"]["n"]
        if n == 1:
            raise ValueError("one")
        if n == 2:
            while True:
                pass
        if n == 3:
            ctx.state["much"] = "x" * 2_000_000
        if n == 4:
            ctx.produce("out", object())
        if n == 5:
            ctx.set_timer("past", record.time_ns - 1)
        ctx.produce("out", {"n": n})

    def process_timer(self, ctx, timer):
        ctx.produce("out", {"n": -1})


topology = Topology("faulty")
joined = topology.joined("in")
topology.add(Faulty(), {joined: lambda record: record.value["foreign"]["name"]}, ["out"])
topology.publish("out", "out")
"""


def test_faulty_code_is_one_line_with_computation_and_key(tmp_path: Path) -> None:
    _feed(tmp_path, range(14))
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY)
    done = CliRunner().invoke(main, ["compute", "run", str(file), "--once", "-o", "json"])
    assert done.exit_code == 3, done.output
    said = [line for line in done.output.splitlines() if line.startswith("photon: ")]
    for line, key, why in zip(
        sorted(said), (1, 2, 3, 4), ("ValueError: one", "0.2 s", "bytes", "object"), strict=True
    ):
        assert line.startswith(f"photon: computation faulty, key 'name {key}': ")
        assert why in line
    assert sorted(each["n"] for each in _read(tmp_path / "out")) == [-1, 0, 5, 6, 7, 12, 13]
    file.write_text(FAULTY.replace("n == ", "n == 1000 + "))
    mended = CliRunner().invoke(main, ["compute", "run", str(file), "--once", "-o", "json"])
    assert mended.exit_code == 0, mended.output
    assert sorted(each["n"] for each in _read(tmp_path / "out")) == list(range(-1, 14))
    shown = CliRunner().invoke(main, ["compute", "status", str(file)])
    assert (shown.exit_code, "faulty" in shown.output) == (0, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = (", r"bad\.py:1: SyntaxError"),
        ("\n1 / 0", r"bad\.py:2: ZeroDivisionError"),
        ("x = 1", "has no `topology`"),
        ("from photon.computing import Topology\ntopology = Topology('t')\ntopology.publish('a', 'b')", "'a'"),
    ],
)
def test_a_file_that_cannot_run_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        load_topology(file)
    done = CliRunner().invoke(main, ["compute", "run", str(file)])
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for command in (["run", "no.py"], ["status", "--state", str(tmp_path)], ["status"]):
        done = CliRunner().invoke(main, ["compute", *command])
        assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    _feed(tmp_path, range(1))
    compute.run(_topology(), state=tmp_path / "state", base=tmp_path, once=True)
    other = _topology()
    other.name = "other"
    with pytest.raises(UsageError, match="is the state of sums"):
        compute.run(other, state=tmp_path / "state", base=tmp_path, once=True)


def test_metrics_are_those_of_the_table(tmp_path: Path) -> None:
    _feed(tmp_path, range(10))
    compute.run(_topology(), state=tmp_path / "state", base=tmp_path, once=True)
    readings = Readings()
    put_status(readings, statuses(tmp_path / "state"))
    text = readings.text()
    assert 'photon_computing_records_total{interval="i0",topology="sums"} 17.0' in text
    assert 'photon_computing_published_total{interval="i0",topology="sums"} 8.0' in text
    assert 'photon_computing_waiting{computation="sum",interval="i0",topology="sums"} 0.0' in text


def test_metrics_are_served(tmp_path: Path) -> None:
    _feed(tmp_path, range(3))
    (address,) = (f"127.0.0.1:{port}" for port in free_ports(1))
    file = tmp_path / "sums.py"
    file.write_text(FAULTY)
    with running("compute", "run", file, "--metrics", address, log=tmp_path / "log") as process:
        until(lambda: "photon_computing_records_total" in _get(f"http://{address}/metrics"), 60, "it answers")
        assert _get(f"http://{address}/healthz") == "ok\n"
        assert interrupt(process) == 3  # something is put aside


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
