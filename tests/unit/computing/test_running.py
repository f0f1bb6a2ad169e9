"""A topology over files: each record once in the published output, through restarts, several owners and
faulty code."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import photon
from photon import compute
from photon.assembly.computing import load_topology, reads_of
from photon.cli.main import main
from photon.computing import Computation, Context, Record, Timer, Topology
from photon.computing import running as loop
from photon.computing.journal import Status, put_status
from photon.computing.links import Links
from photon.computing.owner import Owner
from photon.computing.publisher import Publisher
from photon.computing.running import Running
from photon.computing.site import Site, statuses
from photon.computing.standing import Standing
from photon.computing.wire import ENDED_NS, Ack, Item, Message, Watermark
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.metrics.readings import Readings
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.next_read import end_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.watermarks import Journal, Pair
from photon.supervision.ports import free_ports
from tests.integration.commands import interrupt, running, until
from tests.unit.fleet.test_watermarks import Verifier
from tests.unit.refusals import photon as invoked
from tests.unit.refusals import refused

DISK = RealDisk()


class Sum(Computation):
    """Keyed by name: the sum up to the watermark."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["foreign"]["n"]
        ctx.set_timer("end", 1_000)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("sums", {"name": ctx.key, "sum": ctx.state.pop("sum")})


class Total(Computation):
    """Total over all names: another key, maybe of another owner."""

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
    values = ((n, msgspec.msgpack.encode({"name": f"name {n % 7}", "n": n})) for n in numbers)
    publisher.publish(Item(n, "", "", n, value, "in") for n, value in values)
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
    assert not (tmp_path / "totals/.photon/verifier/watermarks.jsonl").exists(), "more may come"


@pytest.mark.parametrize("intervals", [1, 2])
@pytest.mark.parametrize("kill", [False, True])
def test_a_later_run_counts_what_has_come_since_and_nothing_of_it_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, intervals: int, kill: bool
) -> None:
    """Even if the run before was killed near its end."""
    site = Site(_topology(), tmp_path, tmp_path / "state", reads_of)
    site.intervals(intervals)
    for n in range(4):
        _feed(tmp_path, range(50 * n, 50 * n + 50), slot=f"s{n}")
        if kill and n % 2 == 0:
            where, name, what = (Standing, "reopen", _killed) if n else (Owner, "ended", property(_killed))
            with monkeypatch.context() as patched:
                patched.setattr(where, name, what)
                with pytest.raises(Killed):
                    compute.run(_topology(), state=tmp_path / "state", base=tmp_path, once=True)
            continue
        done = compute.run(_topology(), state=tmp_path / "state", base=tmp_path, once=True)
        assert (done.late, done.aside) == (0, 0)
    assert sum(each["sum"] for each in _read(tmp_path / "sums")) == sum(range(200))
    totals = [sum(range(50 * n + 50)) for n in range(4)]
    assert sorted(each["all"] for each in _read(tmp_path / "totals")) == totals, "one of each run, with all before"
    assert site.table.look().closing == ""


class Pass(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("passed", record.value)


class Seen(Computation):
    def process_record(self, ctx: Context, record: Record) -> None: ...


def test_all_owners_of_a_run_read_up_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More records come with a later watermark when one owner has read everything, and another nothing."""
    monkeypatch.setattr(loop, "SAY_S", 0.05)
    made = Topology("passes")
    made.add(Pass(), {made.joined("in"): lambda record: record.value["foreign"]["name"]}, ["passed"])
    made.add(Seen(), {"passed": lambda record: "every"})
    site = Site(made, tmp_path, tmp_path / "state", reads_of)
    site.intervals(2)

    def feed(numbers: range, slot: str) -> None:
        _feed(tmp_path, numbers, slot)
        journal = Journal(DISK, tmp_path / "in/.photon")
        journal.begin()
        end = end_of(OutputPlace.of_join(tmp_path / "in").published(DISK))
        journal.add(Pair(0, numbers.stop - 10, numbers.stop - 10, 0, end))
        journal.close()

    def run(to_the_end: bool) -> bool:
        stop = threading.Event()
        first = Running(site, ["i0"] if to_the_end else [], once=to_the_end)
        counted: list[list[int]] = []

        def look(found: list[Status]) -> None:
            counted.append([sum(each.counts[what] for each in found) for what in ("records", "late")])
            if to_the_end or counted[-1][0] >= 100 or len(counted) > 20:
                stop.set()

        first.run(stop, look)
        first.close()
        if to_the_end:
            feed(range(50, 100), "t")
            both = Running(site, once=True)
            both.run(threading.Event())
            both.close()
        else:
            assert counted[-1] == [100, 0], "50 records, in each of two computations"
        return True

    feed(range(50), "s")
    site.runs(True, run)
    site.runs(False, run)


class Killed(BaseException):
    pass


def _killed(owner: object) -> bool:
    if isinstance(owner, Owner) and not all(each.low_ns == ENDED_NS for each in owner.engine._stages):
        return False
    raise Killed


@pytest.mark.parametrize("shared", [True, False])
def test_several_owners_send_one_another_what_they_do_not_own(tmp_path: Path, shared: bool) -> None:
    _feed(tmp_path, range(50))
    site = Site(_topology(shared=shared), tmp_path, tmp_path / "state", reads_of)
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


def test_links_made_again_in_one_process_get_what_a_connected_peer_sends(tmp_path: Path) -> None:
    """After an error, and after a split or merge of another interval of the process."""
    before = set(threading.enumerate())
    a, b = Links(tmp_path, ["a"], ["a", "b"]), Links(tmp_path, ["b"], ["a", "b"])
    got: list[object] = []

    def comes(number: int) -> bool:
        b.send("a", Ack("a", "b", number))
        a.send("b", Ack("b", "a", number))
        got.extend(a.received("a"))
        return Ack("a", "b", number) in got

    until(lambda: comes(1), 20, "it is connected")
    a.close()
    a = Links(tmp_path, ["a"], ["a", "b"])
    until(lambda: comes(2), 20, "it is connected again")
    a.close()
    b.close()
    (tmp_path / "b.sock").unlink()
    (tmp_path / "b.sock").mkdir()
    with pytest.raises(OSError, match=r"b\.sock"):
        Links(tmp_path, ["a", "b"], ["a", "b", "c"])
    until(lambda: set(threading.enumerate()) <= before, 20, "no thread is left")


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


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_would_be_lost_or_left_out_ends_with_3_and_changes_nothing(tmp_path: Path, processes: str) -> None:
    """Published files lack something that the state has published, and a source that is another output."""
    file = tmp_path / "counts.py"
    file.write_text(FAULTY.replace("n == ", "n == 1000 + "))
    run = ["compute", "run", str(file), "--once", "--quiet", "--processes", processes]
    _feed(tmp_path, range(14))
    assert CliRunner().invoke(main, run).exit_code == 0
    durable = next((tmp_path / "out" / ".photon" / "slots").glob("*/durable.json"))
    kept, before = durable.read_bytes(), {path: path.read_bytes() for path in (tmp_path / "out" / "joined").iterdir()}
    durable.unlink()
    assert CliRunner().invoke(main, run).exit_code == 3
    assert {path: path.read_bytes() for path in (tmp_path / "out" / "joined").iterdir()} == before
    durable.write_bytes(kept)
    (tmp_path / "other").mkdir()
    _feed(tmp_path / "other", range(20))
    text = file.read_text()
    file.write_text(text.replace('joined("in")', 'joined("other/in")'))
    assert CliRunner().invoke(main, run).exit_code == 3
    (tmp_path / "in").rename(tmp_path / "moved")
    file.write_text(text.replace('joined("in")', 'joined("moved")'))
    assert CliRunner().invoke(main, run).exit_code == 0
    assert len(_read(tmp_path / "out")) == 14


def test_faulty_code_is_one_line_with_computation_and_key(tmp_path: Path) -> None:
    _feed(tmp_path, range(14))
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY)
    done = CliRunner().invoke(main, ["compute", "run", str(file), "--once", "-o", "json"])
    assert done.exit_code == 3, done.output
    said = [line for line in done.output.splitlines() if line.startswith("photon: ")]
    whys = ("ValueError: one", "0.2 s", "bytes", "object")
    for line, key, why in zip(sorted(said), (1, 2, 3, 4), whys, strict=True):
        assert line.startswith(f"photon: computation faulty, key 'name {key}': ")
        assert why in line
    assert sorted(each["n"] for each in _read(tmp_path / "out")) == [-1, 0, 5, 6, 7, 12, 13]
    file.write_text(FAULTY.replace("n == ", "n == 1000 + "))
    mended = CliRunner().invoke(main, ["compute", "run", str(file), "--once", "-o", "json"])
    assert mended.exit_code == 0, mended.output
    assert sorted(each["n"] for each in _read(tmp_path / "out")) == list(range(-1, 14))
    shown = CliRunner().invoke(main, ["status", "compute", str(file)])
    assert (shown.exit_code, "faulty" in shown.output) == (0, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = (", "bad.py:1: SyntaxError"),
        ("\n1 / 0", "bad.py:2: ZeroDivisionError"),
        ("x = 1", "has no `topology`"),
        ("from photon.computing import Topology\ntopology = Topology('t')\ntopology.publish('a', 'b')", "'a'"),
    ],
)
def test_a_file_that_cannot_run_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        load_topology(file)
    refused(invoked("compute", "run", file))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for command in (["run", "no.py"], ["status", "--state", str(tmp_path)], ["status"]):
        refused(invoked("compute", *command))
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
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


async def test_a_datacentre_on_another_machine_is_read_from_its_copies_and_its_verifier_says_the_watermark(
    tmp_path: Path,
) -> None:
    verifier = Verifier(tmp_path)
    server = await verifier.listen()
    _feed(tmp_path, range(100), "east-1")
    kept = tmp_path / "west" / "state" / "copies" / "east"
    kept.mkdir(parents=True)
    (tmp_path / "in" / ".photon" / "slots" / "east-1").rename(kept / "east-1")
    (tmp_path / "in").rename(kept / "east-1" / "output")
    (kept / "east-1" / "copy.json").write_text("{}")
    end = (kept / "east-1" / "output" / "joined" / "east-1-000001.jsonl").stat().st_size
    verifier.pair = Pair(1, None, 1_000_000_000, 7, Cursor({OutputLog("east-1", "joined"): Position(1, end)}))
    west = tmp_path / "west" / "state" / "verifier" / "watermarks.jsonl"
    west.parent.mkdir()
    west.write_bytes(Pair(1, None, 2_000_000_000, 0, Cursor()).encode() + b"\n")
    made = Topology("sums")
    joined = made.joined("photon.toml")
    made.add(Sum(), {joined: lambda record: record.value["foreign"]["name"]}, ["sums"])
    made.publish("sums", "sums")
    stop = threading.Event()

    def look(found: list[Status]) -> None:
        if found[0].counts["timers"] == 7:
            [mark] = found[0].watermarks.values()
            assert (found[0].counts["records"], mark.waiting) == (100, 7)
            stop.set()

    site = Site(made, tmp_path, tmp_path / "state", reads_of)
    run = Running(site)
    try:
        await asyncio.wait_for(asyncio.to_thread(run.run, stop, look), 60)
    finally:
        stop.set()
        run.close()
        await server.stop(0.0)
    assert sum(each["sum"] for each in _read(tmp_path / "sums")) == sum(range(100))
