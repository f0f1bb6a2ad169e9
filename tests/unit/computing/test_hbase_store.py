"""Commits in HBase that break off, come late or are not answered; limits of one row; several machines."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

import photon
from photon import compute
from photon.assembly.computing import load_topology, reads_of
from photon.cli.main import main
from photon.computing import shared
from photon.computing import store as stores
from photon.computing.errors import ComputingError, Fenced
from photon.computing.intervals import Interval, even
from photon.computing.journal import Status
from photon.computing.running import Running, say_watermarks
from photon.computing.shared import FILE_NAME as HBASE_NAME
from photon.computing.site import Site
from photon.computing.store import GRACE_S, Chunk, Commit, Row, Store, on_hbase, prefix_of
from photon.computing.table import Table
from photon.computing.wire import Watermark
from photon.config.clock import NS_PER_S
from photon.config.errors import UsageError
from photon.rows.api import RowsFailed
from tests.kit.clock import ManualClock
from tests.unit.computing.fake_thrift import FakeHBase, Work, unavailable
from tests.unit.computing.test_running import _feed, _read
from tests.unit.refusals import refused

INTERVAL = even(2).all[1]
ROWS = [Row("c", "a", b"1", 10), Row("c", "b", b"2", None, 5), Row("d", "a", b"3", None, None, 1)]
NEW = [Row("c", "a", b"new", 20), Row("c", "b", None), Row("d", "z", b"4", 7)]
CHUNKS = [Chunk("i1", "i0", 5, b"five"), Chunk("i1", "publish:x", 6, b"six")]


class Died(BaseException):
    pass


@pytest.fixture
def server() -> FakeHBase:
    return FakeHBase()


def opened(server: FakeHBase) -> Store:
    return on_hbase(server.opened(), "t", INTERVAL)


def held(store: Store) -> tuple[list[Row], list[Chunk], bytes]:
    return sorted(store.scan()), list(store.chunks()), store.standing()


def begun(server: FakeHBase) -> tuple[Store, int]:
    store = opened(server)
    sequencer = store.acquire("me")
    store.commit(sequencer, Commit(ROWS, CHUNKS, (), b"one"))
    return store, sequencer


BEFORE = (sorted(ROWS), CHUNKS, b"one")
AFTER = (sorted([NEW[0], NEW[2], ROWS[2]]), [CHUNKS[1]], b"two")
SECOND = Commit(NEW, (), [("i1", "i0", 5)], b"two")


@pytest.mark.parametrize("parts", [8, 0])
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("at", range(8))
def test_a_commit_that_breaks_off_is_there_or_not(
    server: FakeHBase, monkeypatch: pytest.MonkeyPatch, parts: int, done: bool, at: int
) -> None:
    monkeypatch.setattr(stores, "REDO_PARTS", parts)
    monkeypatch.setattr(stores, "PART_BYTES", 50)
    store, sequencer = begun(server)
    calls = itertools.count()

    def fault(name: str, work: Work) -> Any:
        if name in ("get", "scan") or next(calls) != at:
            return work()
        if done:
            work()
        raise Died()

    server.fault = fault
    with contextlib.suppress(Died):
        store.commit(sequencer, SECOND)
    server.fault = lambda name, work: work()
    again = opened(server)
    again.acquire("again")
    now = held(again)
    assert now in (BEFORE, AFTER)
    assert again.due("c", False, 30, 9) == ([(20, "a")] if now == AFTER else [(10, "a")])
    with pytest.raises(Fenced, match="another process has taken over the interval i1"):
        store.commit(sequencer, Commit([Row("c", "a", b"zombie")], (), (), b"zombie"))
    assert held(again) == now


def test_what_comes_late_is_below_what_came_since(server: FakeHBase) -> None:
    """A zombie that wrote the moment of its commit, and wakes up among its rows."""
    store, sequencer = begun(server)
    late: list[Work] = []

    def fault(name: str, work: Work) -> Any:
        if name == "put":
            late.append(work)
            return None
        return work()

    server.fault = fault
    store.commit(sequencer, SECOND)
    server.fault = lambda name, work: work()
    assert len(late) == 4
    other = opened(server)
    newer = other.acquire("other")
    assert held(other) == AFTER
    other.commit(newer, Commit([Row("c", "b", b"back"), Row("d", "z", None)], (), [("i1", "publish:x", 6)], b"three"))
    now = held(other)
    for work in late:
        work()
    assert held(other) == now
    assert {row.key for row in now[0] if row.computation == "c"} == {"a", "b"}


def test_what_was_removed_goes_after_a_while(server: FakeHBase) -> None:
    store, sequencer = begun(server)
    store.commit(sequencer, SECOND)
    rows = server.rows
    gone = [row for row in rows if b"c\0b" in row or b"o" in row[len(prefix_of("t", "i1")) :][:1]]
    store.sweep(1)
    assert all(rows[row] for row in gone)
    store.sweep(100)
    assert not rows[next(row for row in gone if b"c\0b" in row)]
    assert held(store) == AFTER


def test_what_was_removed_goes_though_no_owner_runs_for_long(server: FakeHBase) -> None:
    clock = ManualClock(1_000_000_000 * NS_PER_S)

    def run(commit: Commit) -> None:
        store = on_hbase(server.opened(), "t", INTERVAL, clock)
        store.commit(store.acquire("me"), commit)
        store.close()

    def there() -> bool:
        return any(cells for row, cells in server.rows.items() if b"c\0b" in row)

    run(Commit(ROWS))
    run(Commit(NEW))
    clock.passes(GRACE_S - 1)
    run(Commit())
    assert there()
    clock.passes(2)  # it is an hour after the first, which had removed nothing
    run(Commit())
    clock.passes(GRACE_S / 2)
    run(Commit())
    assert there()
    clock.passes(-10 * GRACE_S)  # it is not known how long ago that was
    run(Commit())
    assert there()
    clock.passes(GRACE_S)
    run(Commit())
    assert not there()


@pytest.mark.parametrize("done", [True, False])
def test_a_lost_answer_is_found_out(server: FakeHBase, done: bool) -> None:
    store, sequencer = begun(server)
    late: list[Work] = []
    lost = iter([True])

    def fault(name: str, work: Work) -> Any:
        if name == "check" and next(lost, False):
            late.append(work)
            if done:
                work()
            raise TimeoutError("no answer")
        if name == "put" and next(lost, False):
            raise unavailable()
        return work()

    server.fault = fault
    store.commit(sequencer, SECOND)
    assert held(store) == AFTER
    store.commit(sequencer, Commit([], (), (), b"three"))
    late[0]()
    assert store.standing() == b"three"


def test_what_does_not_answer_is_one_line(server: FakeHBase, monkeypatch: pytest.MonkeyPatch) -> None:
    store, sequencer = begun(server)
    monkeypatch.setattr(store._rows.servers, "given_up", lambda began: True)
    for name in ("check", "put"):
        sequencer = store.acquire("me")

        def fault(call: str, work: Work, name: str = name) -> Any:
            if call == name:
                raise TimeoutError("no answer")
            return work()

        server.fault = fault
        with pytest.raises(RowsFailed, match=r"^HBase at fake:1 (does not answer|cannot write table t): no answer$"):
            store.commit(sequencer, SECOND)
        server.fault = lambda name, work: work()
    with pytest.raises(Fenced):  # its rows may not be there
        store.commit(sequencer, SECOND)
    store.acquire("again")
    assert held(store) == AFTER


def test_rows_have_any_size_and_key(server: FakeHBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PART_BYTES", 10)
    store, sequencer = begun(server)
    odd = [Row("c", "k" * 5_000, b"x" * 95), Row("a\0b", "c", b"1"), Row("a", "b\0c", b"2"), Row("c", "", b"", 1)]
    store.commit(sequencer, Commit(odd))
    store.commit(sequencer, Commit([odd[0]._replace(data=b"short")]))
    assert store.load("c", ["k" * 5_000])["k" * 5_000].data == b"short"
    assert store.load("a\0b", ["c"]) == {"c": odd[1]}
    assert store.load("a", ["b\0c"]) == {"b\0c": odd[2]}
    assert store.load("c", ["", "none"]) == {"": odd[3]}
    monkeypatch.setattr(stores, "ROW_BYTES_MAX", 99)
    with pytest.raises(ComputingError, match="key 'big': its row has 100 bytes, more than 99"):
        store.commit(sequencer, Commit([Row("c", "big", b"x" * 100)]))
    assert "big" not in store.load("c", ["big"])


def test_what_is_damaged_or_of_others_is_said(server: FakeHBase) -> None:
    begun(server)
    with pytest.raises(
        ComputingError, match=r"HBase, t i1: has the interval i1 \(0x80000000 to 0x100000000\), not i1 \(0x0"
    ):
        on_hbase(server.opened(), "t", Interval(0, 5, "i1"))
    with pytest.raises(UsageError, match="zero byte"):
        on_hbase(server.opened(), "t\0", INTERVAL)
    row = server.rows[prefix_of("t", "i1") + b"i"]
    (value, version) = row.pop(b"r0")
    with pytest.raises(ComputingError, match="damaged: the last commit is incomplete"):
        opened(server).acquire("other")
    row[b"r0"] = (value[:-1], version)
    with pytest.raises(ComputingError, match="damaged"):
        opened(server).acquire("other")
    (head, version) = row[b"head"]
    row[b"head"] = (head.replace(b'"photon_computing":2', b'"photon_computing":1'), version)
    with pytest.raises(
        ComputingError, match=r"^HBase, t i1: cannot be read: version 1, this release reads version 2$"
    ):
        opened(server)


def test_timers_of_many_keys_stay_in_order() -> None:
    timers = stores._Timers()
    for n in range(3_000):
        timers.put(f"k{n % 3}", 10_000 - n)
    timers.put("k0", None)
    timers.put("gone", None)
    assert timers.due(1 << 62, 9) == [(7_001, "k2"), (7_002, "k1")]
    assert timers.due(1 << 62, 1) == timers.due(7_001, 9) == [(7_001, "k2")]
    assert len(timers._heap) < 2_000


# -- machines --------------------------------------------------------------------------------------------------------
SUMS = """
from photon.computing import Computation, Topology


class Sum(Computation):
    def process_record(self, ctx, record):
        ctx.state["sum"] = ctx.state.get("sum", 0) + record.value["foreign"]["n"]
        ctx.set_timer("end", 1_000)

    def process_timer(self, ctx, timer):
        ctx.produce("sums", {"name": ctx.key, "sum": ctx.state.pop("sum")})


topology = Topology("sums")
joined = topology.joined("in")
topology.add(Sum(), {joined: lambda record: record.value["foreign"]["name"]}, ["sums"])
topology.publish("sums", "sums")
"""


@pytest.fixture
def command(server: FakeHBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(shared, "hbase_rows", lambda thrift, table: server.opened())
    (tmp_path / "sums.py").write_text(SUMS)

    def run(what: str, state: str, *options: str, file: str = "sums.py") -> Result:
        given = ["compute", what, str(tmp_path / file), "--state", str(tmp_path / state), *options]
        return CliRunner().invoke(main, [*given, "-o", "json"])

    return run


INIT = ("--hbase", "fake:1", "--not-durable")


def test_machines_share_a_topology(command: Callable[..., Result], tmp_path: Path) -> None:
    _feed(tmp_path, range(70))
    assert "only if it runs on HDFS: give --durable" in refused(command("init", "a", "--hbase", "fake:1"))
    said = command("init", "a", *INIT, "--processes", "2", "--intervals", "i0")
    assert json.loads(said.output) == {
        "topology": "sums", "table": "photon_computing", "made": False, "durable": False, "intervals": ["i0"],
    }  # fmt: skip
    assert json.loads(command("init", "b", *INIT).output)["intervals"] == ["i1"]
    for state in ("a", "b"):
        done = command("run", state, "--once")
        assert done.exit_code == 0, done.output
    sums = {each["name"]: each["sum"] for each in _read(tmp_path / "sums")}
    assert sums == {f"name {k}": sum(range(k, 70, 7)) for k in range(7)}
    assert len(list(photon.read(tmp_path / "sums"))) == 7
    shown = CliRunner().invoke(main, ["status", "compute", str(tmp_path / "a"), "-o", "json"])
    assert [each["interval"] for each in json.loads(shown.output)["owners"]] == ["i0", "i1"]
    watermarks = tmp_path / "sums/.photon/verifier/watermarks.jsonl"
    assert not watermarks.exists(), "more may come"
    _feed(tmp_path, range(70, 84), "more")
    for state in ("a", "b"):  # an hour later
        assert command("run", state, "--once").exit_code == 0
    assert sum(each["sum"] for each in _read(tmp_path / "sums")) == sum(range(84))

    topology = load_topology(tmp_path / "sums.py")
    with contextlib.closing(Site(topology, tmp_path, tmp_path / "a", reads_of)) as site:
        assert site.shared is not None
        for low_ns, each in enumerate(site.shared.statuses(["i0", "i1"]), 5):
            said_later = {"published": {"sums": Watermark(low_ns, low_ns)}, "at_ns": each.at_ns + 1}
            site.shared.say(msgspec.structs.replace(each, **said_later))
        say_watermarks(site, ["i1"], {})
        assert not watermarks.exists(), "the machine of the first interval says it"
        say_watermarks(site, ["i0"], {})
    assert json.loads(watermarks.read_text().splitlines()[-1])["exact_ns"] == 5


def test_an_interval_is_taken_over(command: Callable[..., Result], tmp_path: Path) -> None:
    _feed(tmp_path, range(70))
    command("init", "a", *INIT, "--processes", "2")
    topology = load_topology(tmp_path / "sums.py")
    compute.run(topology, state=tmp_path / "a", base=tmp_path, once=True)
    idle = Running(Site(topology, tmp_path, tmp_path / "a", reads_of))
    taken = command("init", "b", *INIT, "--intervals", "i0,i1")
    assert json.loads(taken.output)["intervals"] == ["i0", "i1"]
    with pytest.raises(Fenced, match="has taken over the interval i0"):
        idle.say()
    idle.close()
    for what, state in (("run", "a"), ("init", "c")):
        why = "this machine has no interval of sums any more (i0 to "
        assert why in refused(command(what, state, *(INIT if what == "init" else ())))
    _feed(tmp_path, range(70, 140), "more")
    compute.run(topology, state=tmp_path / "b", base=tmp_path, once=True)
    found = [each["sum"] for each in _read(tmp_path / "sums")]
    assert (len(found), sum(found)) == (14, sum(range(140)))


@pytest.mark.parametrize("once", [True, False])
def test_an_interval_is_taken_over_at_the_end_of_a_run(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    """The machine from which it was taken had said that nothing more comes, and is gone."""
    _feed(tmp_path, range(70))
    command("init", "a", *INIT)
    with monkeypatch.context() as patched:
        patched.setattr(Table, "close", lambda table, to, ends=None: sys.exit(9) if to == "reopening" else None)
        assert command("run", "a", "--once").exit_code == 9
    command("init", "b", *INIT, "--intervals", "i0")
    _feed(tmp_path, range(70, 140), "more")
    topology, stop = load_topology(tmp_path / "sums.py"), threading.Event()

    def look(found: list[Status]) -> None:
        if found[0].counts["records"] and not once:
            stop.set()

    with contextlib.closing(Site(topology, tmp_path, tmp_path / "b", reads_of)) as site, site.alone():
        late: list[int] = []

        def run(to_the_end: bool) -> bool:
            running = Running(site, once=to_the_end)
            running.run(stop, look)
            late.append(running.say()[0].counts["late"])
            running.close()
            return True

        site.runs(once, run)
    assert late == [0]
    assert sum(each["sum"] for each in _read(tmp_path / "sums")) == sum(range(140 if once else 70))


def test_an_interval_that_is_none_is_said(command: Callable[..., Result]) -> None:
    assert "--intervals i7: sums has i0" in refused(command("init", "a", *INIT, "--intervals", "i7"))


def test_each_machine_publishes_in_the_same_directory(command: Callable[..., Result], tmp_path: Path) -> None:
    _feed(tmp_path, range(7))
    command("init", "a", *INIT)
    assert command("run", "a", "--once").exit_code == 0
    (tmp_path / "other.py").write_text(SUMS.replace('"sums", "sums"', '"sums", "elsewhere"'))
    command("init", "b", *INIT, "--intervals", "i0")
    why = "elsewhere: is not the directory where i0 has published sums so far"
    assert why in refused(command("run", "b", "--once", file="other.py"))


def test_owners_that_send_one_another_stay_on_one_machine(command: Callable[..., Result], tmp_path: Path) -> None:
    chain = 'topology.add(Again(), {"sums": lambda record: "all"})\n'
    (tmp_path / "sums.py").write_text(SUMS + "\nclass Again(Sum):\n    name = 'again'\n\n" + chain)
    why = "works on one machine only: give it all intervals"
    assert why in refused(command("init", "a", *INIT, "--processes", "2", "--intervals", "i0"))
    assert command("init", "a", *INIT, "--intervals", "i0,i1").exit_code == 0


def test_servers_of_another_hbase_are_refused(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would start there from scratch, with different intervals from the machines that join it."""
    assert command("init", "a", *INIT, "--processes", "2").exit_code == 0
    assert command("init", "a", *INIT).exit_code == 0
    place = (tmp_path / "a" / HBASE_NAME).read_bytes()
    other = FakeHBase()
    monkeypatch.setattr(shared, "hbase_rows", lambda thrift, table: other.opened())
    for processes in ("1", "3"):
        why = "does not have the intervals of this state"
        assert why in refused(command("init", "a", *INIT, "--table", "other"))
        assert (tmp_path / "a" / HBASE_NAME).read_bytes() == place
        assert command("init", f"b{processes}", *INIT, "--processes", processes, "--intervals", "i0").exit_code == 0


def test_a_state_in_sqlite_stays_there(command: Callable[..., Result], tmp_path: Path) -> None:
    _feed(tmp_path, range(7))
    assert command("run", "a", "--once").exit_code == 0
    assert "already has a state in SQLite" in refused(command("init", "a", *INIT))


@pytest.mark.parametrize("what", [("rescale",), ("rescale", "--processes", "4", "--dry-run"), ("reload",)])
def test_what_is_not_to_be_had_is_refused(command: Callable[..., Result], what: tuple[str, ...]) -> None:
    command("init", "a", *INIT)
    assert "the state of sums is in HBase: its " in refused(command(what[0], "a", *what[1:]))
