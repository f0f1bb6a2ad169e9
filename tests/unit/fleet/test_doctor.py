"""Each possible problem is a finding of its area, with its level and the remedy; otherwise there is one line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.config.loader import convert
from photon.fleet.doctor import AREAS, Finding, Level, findings, worst
from photon.fleet.here import Directory, Here, KeyPair, Logs, Machine, OutputRange, OwnFile, Package, Port, TablesHere
from photon.fleet.look import Look
from photon.fleet.polling import Heard
from photon.fleet.processes import Process
from photon.fleet.watermarks import DatacentreWatermark
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.operate.inspection import Inspection
from photon.outputs import Cursor
from photon.outputs.watermarks import Pair
from tests.unit.fleet.heard import samples

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NOW_S = NOW.timestamp()
GIB = 1 << 30
MACHINE = Machine("3.11.7", True, "0.1.0", [Package("numpy", ">=1.26,<3", "2.1", True)], 20_000, 20_000, True)
STATE = Directory("east", "state", "/e/state", True, "/e/state", "", 50 * GIB, 100 * GIB, 7, "ext4", False, 0.002)
OUTPUT = replace(STATE, what="output", path="/e/output")
FOREIGN = Logs("east", "foreign", "/e/clicks", ("**/*",), matched=3)
PAIR = KeyPair("datacentre-east", "/c/datacentre-east.crt", True, "", NOW + timedelta(days=90), 0o600)
TABLES = TablesHere("t.db", looked_at=9, safe_point_s=60.0, keep_s=3600.0, observed=True)
PORT = Port("joiner east-1", "127.0.0.1:7101", "ours")
HERE = Here(
    MACHINE, ("east",), (), (STATE, OUTPUT), (FOREIGN,), (PORT,), (PAIR,), OwnFile("/key", "", 0o600), (), TABLES
)


def settings(retention: str = "", host: str = "127.0.0.1") -> Any:
    """A deployment file of two datacentres and a replica."""
    side = {"format": "jsonl", "key": "q"}
    foreign = side | {"id": "i", "time": {"field": "t", "unit": "s"}}
    paths = {"join": "clicks", "primary": "p", "foreign": "f"}
    places = {
        name: {**paths, "output": f"{name}/o", "state": f"{name}/s", "address": f"{host}:{port}"}
        for name, port in (("east", 7100), ("west", 7200))
    }
    replicas = {"r1": {"address": f"{host}:7001", "directory": "r1"}}
    registry = {"replicas": replicas} | ({"retention": retention} if retention else {})
    join = {"primary": side, "foreign": foreign, "unmatched_after": "1h"}
    file = {"join": {"clicks": join}, "datacentre": places, "registry": registry}
    return convert({**file, "key_file": "key", "tls": {"directory": "c"}}, "file")


def heard(
    name: str = "east-1", datacentre: str = "east", kind: str = "joiner", ahead_s: float = 0.001,
    error_s: float = 0.002, **more: Any,
) -> Heard:  # fmt: skip
    """``more``: its version, open_files, ambiguous keys, and details."""
    found = samples(
        ("photon_build_info", {"version": more.pop("version", "0.1.0")}, 1.0),
        ("photon_clock_seconds", {}, NOW_S + ahead_s),
        ("process_open_fds", {}, more.pop("open_files", 50.0)),
        ("process_max_fds", {}, 1024.0),
        ("photon_eventstore_ambiguous_keys_total", {"join": "a"}, more.pop("ambiguous", 0.0)),
    )
    who = Process(datacentre, kind, name, "127.0.0.1:7101")
    return Heard(who, found, more, "", NOW_S - error_s, NOW_S + error_s)


def silent(name: str = "east-1", datacentre: str = "east") -> Heard:
    return Heard(Process(datacentre, "joiner", name, "127.0.0.1:7101"), problem="refused")


def inspection(boundary_ns: int = -(1 << 63), *, disk: int = 50 * GIB, why: str = "") -> dict[str, Inspection]:
    """Replica r1, which leads its config group and one shard."""
    groups = [
        pb.GroupInspection(group=group, is_leader=True, healthy=True, writable=True, term=1, boundary_ns=boundary_ns)
        for group in (0, 1)
    ]
    reply = pb.InspectReply(members={"r1": "127.0.0.1:7001"}, groups=groups, disk_free=disk, disk_size=100 * GIB)
    return {"r1": Inspection("r1", None if why else reply, why, 0.001, 0.0)}


JOINER, WEST = heard(), heard("west-1", "west")
GOOD = Look(NOW_S, (JOINER, WEST), settings(), "", inspection(), (), HERE)


def found(area: str, *, look: Look = GOOD, **changes: Any) -> list[Finding]:
    """Findings of this area; every other area must have none. ``changes``: of the look, or of this machine."""
    of_look = {name: changes.pop(name) for name in list(changes) if hasattr(look, name)}
    said = findings("photon.toml", replace(look, **of_look, here=replace(HERE, **changes)), NOW)
    others = [each for each in said if each.area != area and each.level is not Level.OK]
    assert not others, others
    return [each for each in said if each.area == area]


def only(area: str, level: Level, **changes: Any) -> Finding:
    (finding,) = found(area, **changes)
    assert finding.level is level
    assert finding.what
    if level is not Level.OK:
        assert finding.where
        assert finding.do
    return finding


def test_nothing_wrong_is_a_line_for_each_area() -> None:
    said = findings("photon.toml", GOOD, NOW)
    assert [each.area for each in said] == list(AREAS)
    assert worst(said) is Level.OK


def test_before_a_deployment_was_started_silence_is_no_finding() -> None:
    here = replace(HERE, ports=(replace(PORT, state="free"),))
    look = Look(NOW_S, (silent(), silent("west-1", "west")), settings(), "", inspection(why="refused"), (), here)
    assert worst(findings("photon.toml", look, NOW)) is Level.OK
    assert not look.running


def test_a_process_that_is_silent_while_others_run() -> None:
    finding = only("ports", Level.PROBLEM, heard=(silent(), WEST))
    assert (finding.where, "refused" in finding.what) == ("joiner east-1", True)


def test_a_port_that_another_has() -> None:
    taken = replace(PORT, state="taken")
    assert only("ports", Level.PROBLEM, ports=(taken,)).where == "127.0.0.1:7101"
    for state in ("free", "elsewhere"):
        only("ports", Level.OK, ports=(replace(PORT, state=state),))


@pytest.mark.parametrize(
    ("ahead_s", "error_s", "level"),
    [
        (2.4, 0.0, None),
        (2.6, 0.0, Level.WARNING),
        (2.6, 0.2, None),
        (5.1, 0.0, Level.PROBLEM),
        (-5.1, 0.0, Level.PROBLEM),
    ],
)
def test_one_clock_against_the_others(ahead_s: float, error_s: float, level: Level | None) -> None:
    others = [heard(f"{n}", ahead_s=0.0, error_s=0.0) for n in range(3)]
    said = found("clocks", heard=(*others, heard("odd", ahead_s=ahead_s, error_s=error_s)))
    assert [(each.level, each.where) for each in said] == [(level, "joiner odd") if level else (Level.OK, "")]


def test_datacentres_among_each_other_and_this_machine() -> None:
    east = [heard(f"e{n}", ahead_s=2.4) for n in range(2)]

    def west(ahead_s: float) -> list[Heard]:
        return [heard(f"w{n}", "west", ahead_s=ahead_s) for n in range(2)]

    only("clocks", Level.OK, heard=(*east, *west(-2.4)))
    said = found("clocks", heard=(*east, *west(-2.7)))
    assert [(each.level, each.where) for each in said if "," in each.where] == [(Level.PROBLEM, "east, west")]
    assert only("clocks", Level.WARNING, heard=west(9.0)).where == "this machine"
    starved = [heard(ahead_s=9.0, error_s=9.0)]  # all answers were slow, or this process was
    only("clocks", Level.OK, heard=starved)


def test_an_unsynchronised_clock_matters_where_there_are_others() -> None:
    machine = replace(MACHINE, synchronised=False)
    only("clocks", Level.OK, machine=machine)
    only("clocks", Level.WARNING, machine=machine, settings=settings(host="10.1.1.1"))


def test_silence_about_the_time_is_no_finding() -> None:
    mute = replace(JOINER, families=samples(("photon_build_info", {"version": "0.1.0"}, 1.0)))
    assert "no process reports its time" in only("clocks", Level.OK, heard=(mute,)).what


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"free": GIB - 1}, Level.WARNING),
        ({"free": 4 * GIB}, Level.WARNING),
        ({"free": 6 * GIB}, Level.OK),
        ({"free": 60 * GIB, "size": 9000 * GIB}, Level.OK),
        ({"free": (100 << 20) - 1}, Level.PROBLEM),
        ({"sync_s": 0.2}, Level.WARNING),
        ({"sync_s": 2.0}, Level.PROBLEM),
        ({"network": True, "file_system": "nfs4"}, Level.PROBLEM),
        ({"problem": "permission denied"}, Level.PROBLEM),
    ],
)
def test_disks(changes: dict[str, Any], level: Level) -> None:
    only("disks", level, directories=(replace(STATE, **changes), OUTPUT))


def test_output_may_be_elsewhere_than_state_and_it_is_said() -> None:
    said = only("disks", Level.OK, directories=(STATE, replace(OUTPUT, device=8, network=True)))
    assert "different file systems" in said.what
    assert "different" not in only("disks", Level.OK).what


def test_logs() -> None:
    assert "no such" in only("logs", Level.PROBLEM, logs=(replace(FOREIGN, problem="no such directory"),)).what
    nothing = only("logs", Level.WARNING, logs=(replace(FOREIGN, matched=0, others=4, patterns=("*.log",)),))
    assert ("*.log" in nothing.what, "4 files" in nothing.what) == (True, True)
    names = [f"{n}.log" for n in range(9)]
    many = only("logs", Level.PROBLEM, logs=(replace(FOREIGN, unreadable=names),))
    assert ("9 files" in many.what, "and 4 more" in many.what) == (True, True)
    marked = only("logs", Level.WARNING, logs=(replace(FOREIGN, join="clicks", absent_keys={"NULL": 3}),))
    assert "3 sampled records have the key 'NULL', which usually means that there is no value" in marked.what
    assert marked.do == "add 'NULL' to absent in [join.clicks.foreign] unless it is a real key"
    shared = only("logs", Level.WARNING, heard=(heard("east", kind="eventstore", ambiguous=7.0), WEST))
    assert (shared.where, "7 keys have several" in shared.what) == ("eventstore east", True)


def test_descriptors() -> None:
    logs = (replace(FOREIGN, matched=5000),)
    only("descriptors", Level.OK, logs=logs)
    only("descriptors", Level.WARNING, logs=logs, machine=replace(MACHINE, files_soft=1024))
    only("descriptors", Level.PROBLEM, logs=logs, machine=replace(MACHINE, files_soft=1024, files_hard=4096))
    assert only("descriptors", Level.PROBLEM, heard=(heard(open_files=900.0), WEST)).where == "joiner east-1"


def test_versions() -> None:
    only("versions", Level.PROBLEM, machine=replace(MACHINE, python_fits=False))
    gone, old = Package("rich", ">=13", "", False), Package("rich", ">=13", "12", False)
    assert "rich>=13" in only("versions", Level.PROBLEM, machine=replace(MACHINE, packages=[gone])).do
    only("versions", Level.WARNING, machine=replace(MACHINE, packages=[old]))
    mixed = only("versions", Level.WARNING, heard=(JOINER, heard("west-1", "west", version="0.2.0")))
    assert "0.2.0" in mixed.what
    east, west = (
        heard(place, place, "dispatcher", join="clicks", adapter=f"acme {number}.0: Clicks 0{number}")
        for number, place in ((1, "east"), (2, "west"))
    )
    adapters = only("versions", Level.WARNING, heard=(east, west))
    assert "acme 1.0: Clicks 01: dispatcher east of east; acme 2.0" in adapters.what
    assert adapters.where == "join clicks"
    assert only("versions", Level.WARNING, heard=[heard(version="0.2.0")]).where == "this machine"


def test_configuration() -> None:
    only("configuration", Level.PROBLEM, mistakes=("join clicks: no such adapter",))
    only("configuration", Level.PROBLEM, states=(OwnFile("/e/state/dispatcher.db", "has format 9"),))
    only("configuration", Level.PROBLEM, key=OwnFile("/key", "cannot be read"))
    loose = only("configuration", Level.WARNING, key=OwnFile("/key", "", 0o640))
    assert (loose.do, "0640" in loose.what) == ("chmod 600 /key", True)
    newer = heard(unmatched_waits="its file is older than that of joiner east-2")
    assert only("configuration", Level.WARNING, heard=(newer,)).where == "joiner east-1"


def test_a_file_that_cannot_be_loaded_leaves_this_machine() -> None:
    said = findings("photon.toml", Look(NOW_S, here=Here(MACHINE, mistakes=("line 3: no value",))), NOW)
    assert [each.area for each in said] == ["configuration", "versions", "descriptors"]
    assert said[0].level is Level.PROBLEM


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"ends": NOW + timedelta(days=31)}, Level.OK),
        ({"ends": NOW + timedelta(days=29)}, Level.WARNING),
        ({"problem": "is the certificate of datacentre-west"}, Level.PROBLEM),
        ({"key_mode": 0o640}, Level.WARNING),
        ({"key_mode": 0o644}, Level.PROBLEM),
        ({"there": False}, Level.PROBLEM),
    ],
)
def test_certificates(changes: dict[str, Any], level: Level) -> None:
    only("certificates", level, pairs=(replace(PAIR, **changes),))


def test_certificates_of_other_machines_are_no_finding() -> None:
    elsewhere = KeyPair("datacentre-west", "/c/datacentre-west.crt", False)
    assert "datacentre-west" in only("certificates", Level.OK, pairs=(PAIR, elsewhere)).what
    assert (
        "plain text"
        in only("certificates", Level.OK, settings=msgspec.structs.replace(settings(), tls=None), pairs=()).what
    )
    only("certificates", Level.PROBLEM, unasked="no operator.crt")


def test_registry() -> None:
    assert only("registry", Level.OK).what == "1 of 1 replicas answer; ids are kept permanently"
    low = only("registry", Level.WARNING, replicas=inspection(disk=GIB // 2))
    assert (low.where, bool(low.do)) == ("replica r1", True)
    lost = found("registry", replicas=inspection(why="refused"))
    assert {each.level for each in lost} == {Level.PROBLEM}

    def aged(hours: float) -> dict[str, Any]:
        return {"settings": settings("1d"), "replicas": inspection(int((NOW_S - hours * 3600) * 1e9))}

    only("registry", Level.OK, **aged(24.5))
    assert only("registry", Level.WARNING, **aged(27)).where == "shard 1"


def test_a_watermark_that_stands_still_is_named_with_what_holds_it_back() -> None:
    assert "there is no watermark" in only("watermarks", Level.OK).what

    def mark(still_s: float, exact_still_s: float, *held_by: str) -> DatacentreWatermark:
        pair = Pair(ns(0.0), ns(2.0), ns(2.0), 0, Cursor(), held_by)
        moved = {"percentile_moved_ns": ns(still_s), "exact_moved_ns": ns(exact_still_s)}
        return DatacentreWatermark("east", "clicks", Path("state"), pair, **moved)

    def ns(ago_s: float) -> int:
        return int((NOW_S - ago_s) * 1e9)

    east = mark(1.0, 1.0)
    assert "2 s behind" in only("watermarks", Level.OK, watermarks=(east,)).what
    held = mark(90.0, 90.0, "slot east-1: its joiner does not answer")
    (finding,) = found("watermarks", watermarks=(held, east))
    assert (finding.level, finding.where) == (Level.WARNING, "east")
    assert (
        "the percentile watermark has not moved for 90 s; held back by: slot east-1: its joiner does" in finding.what
    )
    waits = mark(1.0, 3700.0, "events that have no verdict")  # they may wait for an hour
    assert (
        "the exact watermark has not moved for 100 s" in only("watermarks", Level.WARNING, watermarks=(waits,)).what
    )


def test_what_a_computation_says_is_passed_on() -> None:
    assert "none configured" in only("computations", Level.OK).what
    well = heard("spend", "", "compute", computing={"alarms": []})
    assert "1 run" in only("computations", Level.OK, heard=(JOINER, WEST, well)).what
    alarm = {"what": "its watermark has not moved for 90 s; held back by west", "todo": "see to west"}
    held = heard("spend", "", "compute", computing={"alarms": [alarm]})
    finding = only("computations", Level.WARNING, heard=(JOINER, WEST, held))
    assert (finding.where, finding.do) == ("compute spend", "see to west")


def test_tables() -> None:
    assert only("tables", Level.OK).what == "t.db answers; 9 cells checked; the safe point moved 1 min 0 s ago"
    assert found("tables", tables=None) == []
    away = TablesHere("HBase, table photon_tables", "no server answers")
    assert only("tables", Level.PROBLEM, tables=away).where == "HBase, table photon_tables"
    silent = replace(TABLES, oracle_problem="replica r1: not the leader")
    assert "no timestamps are handed out" in only("tables", Level.PROBLEM, tables=silent).what
    stuck = replace(TABLES, stuck=3, stuck_at="clicks/k1/print")
    assert (
        "3 cells wait for observers; clicks/k1/print makes no progress"
        in only("tables", Level.WARNING, tables=stuck).what
    )
    left = replace(TABLES, old_locks=["clicks/k1/print", "clicks/k2/print"])
    assert "2 locks of dead or slow clients: clicks/k1/print" in only("tables", Level.WARNING, tables=left).what
    old = replace(TABLES, safe_point_s=3 * 3600.0 + 1)
    assert "moved 3 h 0 min ago, so old versions" in only("tables", Level.WARNING, tables=old).what
    only("tables", Level.OK, tables=replace(old, observed=False))


def test_output_that_readers_stop_at_and_output_that_they_skip() -> None:
    short = OutputRange("/e/output/joined/east-1-000004.jsonl", 90, 1200, "has 90 bytes, but 1200 were published")
    problem = only("output", Level.PROBLEM, ranges=(short,))
    assert problem.what == (
        "has 90 bytes, but 1200 were published; readers that have not read its bytes 90 to 1,200 stop there"
    )
    assert "photon spark verify, then photon spark recover" in problem.do
    gone = only("output", Level.WARNING, ranges=(replace(short, start=0, why="is gone", moved=True),))
    assert gone.what.startswith("is gone: archived, or lost; ")
    skipped = only("output", Level.OK, ranges=(replace(short, marked="2026-11-28T00:00:00+00:00"),))
    assert "readers skip 1 damaged range: /e/output/joined/east-1-000004.jsonl from 90 to 1,200" in skipped.what
