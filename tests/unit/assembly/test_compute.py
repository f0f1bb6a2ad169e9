"""Computations as a process of a deployment: kept running, whatever their file does, and their reported state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from photon import compute
from photon.assembly.compute import SILENT_S, STILL_S, Watch, serve_compute
from photon.assembly.computing import load_topology, site_of
from photon.assembly.room import Room
from photon.computing.journal import Status, write_status
from photon.computing.publisher import Publisher
from photon.computing.shared import FILE_NAME as HBASE_NAME
from photon.computing.table import NAME as INTERVALS_NAME
from photon.computing.wire import NEVER_NS, Watermark
from photon.config.clock import NS_PER_S as S
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.metrics.readings import Readings
from photon.fleet.polling import Gatherer
from photon.fleet.processes import processes
from photon.supervision.ports import free_ports
from tests.kit.clock import ManualClock

T = 1_760_000_000
TOPOLOGY = """
from photon.computing import Computation, Topology

class Count(Computation):
    def process_record(self, ctx, record):
        pass

topology = Topology("counts")
topology.add(Count(), {topology.joined("out"): lambda record: "all"})
"""


class Site:
    """Two owners and their watcher."""

    def __init__(self, state: Path) -> None:
        self.clock, self.state = ManualClock(T * S), state
        (state / INTERVALS_NAME).write_text(
            '{"photon_computing":1,"topology":"t","intervals":[[0,9,"i0"],[9,4294967296,"i1"]],"id":"x"}'
        )
        self.watch = Watch("spend", state, self.clock)

    def say(self, interval: str, *, source: int, spend: int, total: int, **more: Any) -> None:
        """Times of watermarks are in seconds after T."""
        marks = (Watermark((T + at - 60) * S, (T + at) * S, 3) for at in (source, spend, total))
        joined, first, second = marks
        status = Status(
            topology="t", interval=interval, pid=ord(interval[1]), at_ns=self.clock.now_ns(), records_per_s=10.0,
            counts={"records": 5, "late": 1, "aside": 0, **more.pop("counts", {})}, published_records=2,
            watermarks={"Spend": first, "Total": second}, sources={"joined": joined}, **more,
        )  # fmt: skip
        write_status(RealDisk(), self.state, status)

    def row(self) -> dict[str, Any]:
        return self.watch.look()[1]

    def alarms(self) -> list[str]:
        return [each["what"] for each in self.row()["alarms"]]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_row_is_over_all_owners_and_by_stage(site: Site) -> None:
    site.clock.passes(10)
    site.say("i0", source=9, spend=8, total=7)
    site.say("i1", source=9, spend=6, total=7)
    row = site.row()
    assert (row["running"], row["processes"], row["intervals"], row["silent"]) == (True, 2, 2, 0)
    assert (row["records_per_s"], row["records"], row["late"], row["aside"], row["published"]) == (20, 10, 2, 0, 4)
    stages = [(each["stage"], each["computation"], each["lag_s"], each["waiting"]) for each in row["stages"]]
    assert stages == [(1, "Spend", 4.0, 3), (2, "Total", 3.0, 3)]
    assert row["stages"][0]["watermark"] == "2025-10-09T08:53:26Z"
    assert not row["alarms"]
    into = Readings()
    await site.watch.read(into)
    assert 'photon_computing_lag_seconds{computation="Spend",topology="t"} 4.0' in into.text().replace(
        'topology="t",computation="Spend"', 'computation="Spend",topology="t"'
    )
    assert "photon_computing_running 1.0" in into.text()


def test_an_input_that_stands_still_is_told_with_who_holds_it_back(site: Site) -> None:
    held: dict[str, Any] = {"held_by": {"joined": ["west: its dispatcher is down"]}}
    for _ in range(int(STILL_S) // 20 + 2):
        site.say("i0", source=9, spend=9, total=9, **held)
        site.say("i1", source=9, spend=9, total=9, **held)
        found = site.alarms()
        site.clock.passes(20)
    assert found == [
        "the watermark of its input joined has not moved for 1 min 20 s; held back by west: its dispatcher is down"
    ]
    site.say("i0", source=12, spend=9, total=9)
    site.say("i1", source=12, spend=9, total=9)
    assert "joined" not in "".join(site.alarms())


def test_a_computation_that_stands_still_while_its_input_moves_is_told_but_not_one_that_waits_for_exact(
    site: Site,
) -> None:
    for exact, found in ((False, ["Total has not moved for 1 min 20 s, though its input has: outbox"]), (True, [])):
        for at in range(5):
            for interval in ("i0", "i1"):
                site.say(interval, source=15 * at, spend=15 * at, total=0, held="outbox", exact=exact)
            said = site.alarms()
            site.clock.passes(20)
        assert said == found


def test_records_put_aside_and_owners_that_are_silent_are_told(site: Site) -> None:
    site.say("i1", source=9, spend=9, total=9)
    site.clock.passes(SILENT_S + 1)
    site.say("i0", source=9, spend=9, total=9, counts={"aside": 2}, faults=["Spend, key 'acme': KeyError: 'cents'"])
    assert site.alarms() == [
        "1 of 2 intervals is silent",
        "2 records and timers put aside: Spend, key 'acme': KeyError: 'cents'",
    ]


def test_owners_on_other_machines_are_not_waited_for(site: Site) -> None:
    (site.state / HBASE_NAME).write_text("{}")
    site.say("i1", source=9, spend=9, total=9)
    assert (site.row()["intervals"], site.row()["silent"], site.alarms()) == (1, 0, [])
    assert [each["computation"] for each in site.row()["stages"]] == ["Spend", "Total"]


def test_what_ended_is_told_until_it_computes_again(site: Site) -> None:
    site.say("i0", source=9, spend=9, total=9)
    site.watch.begun_ns = site.clock.now_ns() + 1
    site.watch.problem = "spend.py, line 3: NameError: name 'x' is not defined"
    row = site.row()
    assert (row["running"], row["records_per_s"]) == (False, 0)
    assert site.alarms() == [f"does not run: {site.watch.problem}"]
    site.clock.passes(1)
    site.say("i0", source=9, spend=9, total=NEVER_NS)
    assert (site.row()["running"], site.row()["problem"]) == (True, "")


def test_before_the_first_start_nothing_is_known(tmp_path: Path) -> None:
    row = Watch("spend", tmp_path / "state", ManualClock(T * S)).look()[1]
    assert (row["running"], row["intervals"], row["stages"], row["alarms"]) == (False, 0, [], [])


def _settings(base: Path, address: str = "127.0.0.1:1") -> Any:
    file = base / "photon.toml"
    file.write_text(f'[compute.spend]\nfile = "counts.py"\nstate = "state"\nprocesses = 2\naddress = "{address}"\n')
    return load(file, environment={})


async def test_a_broken_file_is_one_line_and_is_taken_up_when_corrected_and_each_process_has_its_share(
    tmp_path: Path,
) -> None:
    Publisher(RealDisk(), tmp_path / "out", "s").close()
    (tmp_path / "counts.py").write_text("import nowhere\n")
    settings, up = _settings(tmp_path, f"127.0.0.1:{free_ports(1)[0]}"), asyncio.Event()
    found, asking, ending = processes(settings), Gatherer(None), [asyncio.Event(), asyncio.Event()]
    serving = [
        asyncio.create_task(serve_compute(Room(settings, tmp_path, end, None, each.name, up=up.set)))
        for each, end in zip(found, ending, strict=True)
    ]

    async def until(what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not (row := (await asking.ask(found[0])).details.get("computing")) or not what(row):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return dict(row)

    try:
        async with asyncio.timeout(180):
            await up.wait()
            broken = await until(lambda row: bool(row["problem"]))
            assert broken["problem"].endswith("counts.py:1: ModuleNotFoundError: No module named 'nowhere'")
            (tmp_path / "counts.py").write_text(TOPOLOGY)
            row = await until(lambda row: row["intervals"] == 2 and not row["silent"])
            assert row["running"]
            topology = load_topology(tmp_path / "counts.py")
            with pytest.raises(UsageError, match="another process runs counts there"):
                await asyncio.to_thread(compute.run, topology, state=tmp_path / "state", base=tmp_path)
            ending[1].set()
            await serving[1]
            (tmp_path / "state" / "i1.status.json").unlink()
            row = await until(lambda row: row["silent"] == 1)
            assert row["running"], "the first goes on"
    finally:
        for end in ending:
            end.set()
        await asyncio.gather(*serving)
        await asking.close()


async def test_a_state_whose_run_to_the_end_was_interrupted_is_refused(tmp_path: Path) -> None:
    Publisher(RealDisk(), tmp_path / "out", "s").close()
    (tmp_path / "counts.py").write_text(TOPOLOGY)
    site = site_of(tmp_path / "counts.py", tmp_path / "state")
    with site.alone():
        site.intervals()
        site.table.close("closing")
    with (
        pytest.raises(UsageError, match="a run with --once was interrupted; complete it: photon compute run"),
        site.together(),
    ):
        raise AssertionError("it runs")


async def test_one_that_is_not_named_in_the_file_is_refused_in_one_line(tmp_path: Path) -> None:
    room = Room(_settings(tmp_path), tmp_path, asyncio.Event(), None, "total")
    with pytest.raises(UsageError, match="total is not in the configuration; there are: spend, spend-2"):
        await serve_compute(room)
