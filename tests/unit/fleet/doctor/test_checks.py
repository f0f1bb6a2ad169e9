"""Each possible problem is a finding of its area, with its level and the remedy; otherwise there is one line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from photon.fleet.doctor.checks import AREAS, Finding, Level, findings, worst
from photon.fleet.doctor.facts import (
    Boundary,
    Directory,
    Facts,
    KeyPair,
    Logs,
    Machine,
    OutputRange,
    Package,
    Port,
    Process,
    Registry,
    Secret,
    State,
    TablesFacts,
    Watermark,
)

NOW = datetime(2026, 11, 22, tzinfo=UTC)
GIB = 1 << 30
MACHINE = Machine("3.11.7", True, "0.1.0", [Package("numpy", ">=1.26,<3", "2.1", True)], 20_000, 20_000, True)
STATE = Directory("east", "state", "/e/state", True, "/e/state", "", 50 * GIB, 100 * GIB, 7, "ext4", False, 0.002)
OUTPUT = replace(STATE, what="output", path="/e/output")
FOREIGN = Logs("east", "foreign", "/e/clicks", ("**/*",), matched=3)
JOINER = Process("east", "joiner east-1", "127.0.0.1:7101", "", "0.1.0", 0.001, 0.002, 50, 20_000)
WEST = replace(JOINER, datacentre="west", name="joiner west-1", address="127.0.0.1:7102")
REGISTRY = Registry((), 3, 3, (Boundary(1, None),), None)
PAIR = KeyPair("datacentre-east", "/c/datacentre-east.crt", True, "", NOW + timedelta(days=90), 0o600)
TABLES = TablesFacts("t.db", looked_at=9, safe_point_s=60.0, keep_s=3600.0, observed=True)
GOOD = Facts(
    "photon.toml", MACHINE, 5.0, ("east",), joins=("clicks",), directories=(STATE, OUTPUT), logs=(FOREIGN,),
    ports=(Port("joiner east-1", "127.0.0.1:7101", "ours"),), processes=(JOINER, WEST), tls=True, pairs=(PAIR,),
    secret=Secret("/key", "", 0o600), registry=REGISTRY, tables=TABLES,
)  # fmt: skip


def found(area: str, **changes: Any) -> list[Finding]:
    """Findings of this area; every other area must have none."""
    said = findings(replace(GOOD, **changes), NOW)
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
    said = findings(GOOD, NOW)
    assert [each.area for each in said] == list(AREAS)
    assert worst(said) is Level.OK


def test_before_a_deployment_was_started_silence_is_no_finding() -> None:
    silent = [replace(each, problem="refused", version="", ahead_s=None) for each in GOOD.processes]
    port = Port("joiner east-1", "127.0.0.1:7101", "free")
    registry = Registry((("error", "replica r1", "refused", "start it"),), 3, 0)
    facts = replace(GOOD, processes=silent, ports=(port,), registry=registry)
    assert worst(findings(facts, NOW)) is Level.OK
    assert not facts.running


def test_a_process_that_is_silent_while_others_run() -> None:
    silent = replace(JOINER, problem="refused", version="", ahead_s=None)
    finding = only("ports", Level.PROBLEM, processes=(silent, WEST))
    assert (finding.where, "refused" in finding.what) == ("joiner east-1", True)


def test_a_port_that_another_has() -> None:
    port = Port("joiner east-1", "127.0.0.1:7101", "taken")
    assert only("ports", Level.PROBLEM, ports=(port,)).where == "127.0.0.1:7101"
    for state in ("free", "elsewhere"):
        only("ports", Level.OK, ports=(replace(port, state=state),))


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
    others = [replace(JOINER, name=f"joiner {n}", ahead_s=0.0) for n in range(3)]
    odd = replace(JOINER, name="odd", ahead_s=ahead_s, error_s=error_s)
    said = found("clocks", processes=(*others, odd))
    assert [(each.level, each.where) for each in said] == [(level, "odd") if level else (Level.OK, "")]


def test_datacentres_among_each_other_and_this_machine() -> None:
    east = [replace(JOINER, name=f"e{n}", ahead_s=2.4) for n in range(2)]
    west = [replace(WEST, name=f"w{n}", ahead_s=-2.4) for n in range(2)]
    only("clocks", Level.OK, processes=(*east, *west))
    west = [replace(each, ahead_s=-2.7) for each in west]
    said = found("clocks", processes=(*east, *west))
    assert [(each.level, each.where) for each in said if "," in each.where] == [(Level.PROBLEM, "east, west")]
    behind = [replace(each, ahead_s=9.0) for each in GOOD.processes]
    assert only("clocks", Level.WARNING, processes=behind).where == "this machine"
    starved = [replace(each, error_s=9.0) for each in behind]  # all answers were slow, or this process was
    only("clocks", Level.OK, processes=starved)


def test_an_unsynchronised_clock_matters_where_there_are_others() -> None:
    machine = replace(MACHINE, synchronised=False)
    only("clocks", Level.OK, machine=machine)
    only("clocks", Level.WARNING, machine=machine, one_machine=False)


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
    assert "3 sampled records have the key 'NULL', which usually stands for no value" in marked.what
    assert marked.do == "add 'NULL' to absent in [join.clicks.foreign], or leave it if it is a real key"
    shared = only("logs", Level.WARNING, processes=(replace(JOINER, name="event store", ambiguous_keys=7), WEST))
    assert (shared.where, "7 of the keys" in shared.what) == ("event store", True)


def test_descriptors() -> None:
    logs = (replace(FOREIGN, matched=5000),)
    only("descriptors", Level.OK, logs=logs)
    only("descriptors", Level.WARNING, logs=logs, machine=replace(MACHINE, files_soft=1024))
    only("descriptors", Level.PROBLEM, logs=logs, machine=replace(MACHINE, files_soft=1024, files_hard=4096))
    full = replace(JOINER, open_files=900, max_files=1024)
    assert only("descriptors", Level.PROBLEM, processes=(full, WEST)).where == "joiner east-1"


def test_versions() -> None:
    only("versions", Level.PROBLEM, machine=replace(MACHINE, python_fits=False))
    gone, old = Package("rich", ">=13", "", False), Package("rich", ">=13", "12", False)
    assert "rich>=13" in only("versions", Level.PROBLEM, machine=replace(MACHINE, packages=[gone])).do
    only("versions", Level.WARNING, machine=replace(MACHINE, packages=[old]))
    mixed = only("versions", Level.WARNING, processes=(JOINER, replace(WEST, version="0.2.0")))
    assert "0.2.0" in mixed.what
    said = (("clicks", "acme 1.0: Clicks 0a"), ("clicks", "acme 2.0: Clicks 0b"))
    east, west = (replace(of, adapter=its) for of, its in zip((JOINER, WEST), said, strict=True))
    adapters = only("versions", Level.WARNING, processes=(east, west))
    assert "acme 1.0: Clicks 0a: joiner east-1 of east; acme 2.0" in adapters.what
    assert adapters.where == "join clicks"
    newer = [replace(each, version="0.2.0") for each in GOOD.processes]
    assert only("versions", Level.WARNING, processes=newer).where == "this machine"


def test_configuration() -> None:
    only("configuration", Level.PROBLEM, mistakes=("join clicks: no such adapter",))
    only("configuration", Level.PROBLEM, states=(State("east", "/e/state/dispatcher.db", "has format 9"),))
    only("configuration", Level.PROBLEM, secret=Secret("/key", "cannot be read"))
    loose = only("configuration", Level.WARNING, secret=Secret("/key", "", 0o640))
    assert (loose.do, "0640" in loose.what) == ("chmod 600 /key", True)


def test_a_file_that_cannot_be_loaded_leaves_this_machine() -> None:
    facts = Facts("photon.toml", MACHINE, 5.0, (), mistakes=("line 3: no value",), loaded=False)
    said = findings(facts, NOW)
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
    assert "plain text" in only("certificates", Level.OK, tls=False, pairs=()).what
    only("certificates", Level.PROBLEM, unasked="no operator.crt")


def test_registry() -> None:
    behind = ("warning", "group 1", "replica r2 is 5,000 entries behind", "wait")
    assert only("registry", Level.WARNING, registry=replace(REGISTRY, findings=(behind,))).where == "group 1"
    lost = ("error", "registry", "1 of 3 replicas answer", "bring them back")
    only("registry", Level.PROBLEM, registry=replace(REGISTRY, up=1, findings=(lost,)))
    kept = replace(REGISTRY, retention_s=86_400.0, boundaries=(Boundary(1, 86_400.0 + 1800), Boundary(2, None)))
    only("registry", Level.OK, registry=kept)
    old = replace(kept, boundaries=(Boundary(1, 86_400.0 + 3 * 3600),))
    assert only("registry", Level.WARNING, registry=old).where == "shard 1"


def test_a_watermark_that_stands_still_is_named_with_what_holds_it_back() -> None:
    assert "none is kept" in only("watermarks", Level.OK).what
    east = Watermark("east", 2.0, 1.0, 0.0)
    assert "2 s behind" in only("watermarks", Level.OK, watermarks=(east,)).what
    held = replace(east, still_s=90.0, held_by=("slot east-1: its joiner does not answer",))
    (finding,) = found("watermarks", watermarks=(held, east))
    assert (finding.level, finding.where) == (Level.WARNING, "east")
    assert "the percentile has not moved for 90 s; held back by: slot east-1: its joiner does" in finding.what
    waits = replace(east, exact_still_s=100.0, held_by=("events that have no verdict",))
    assert "the exact one has not moved for 100 s" in only("watermarks", Level.WARNING, watermarks=(waits,)).what


def test_what_a_computation_says_is_passed_on() -> None:
    assert "none is named" in only("computations", Level.OK).what
    well = Process("", "compute spend", "127.0.0.1:7901", "", "0.1.0", 0.001, 0.002, 50, 20_000, alarms=())
    assert "1 run" in only("computations", Level.OK, processes=(JOINER, WEST, well)).what
    held = replace(well, alarms=(("its watermark has not moved for 90 s; held back by west", "see to west"),))
    finding = only("computations", Level.WARNING, processes=(JOINER, WEST, held))
    assert (finding.where, finding.do) == ("compute spend", "see to west")


def test_tables() -> None:
    assert only("tables", Level.OK).what == "t.db answers; 9 cells looked at; the safe point was moved 1 min 0 s ago"
    assert found("tables", tables=None) == []
    away = TablesFacts("HBase, table photon_tables", "no server answers")
    assert only("tables", Level.PROBLEM, tables=away).where == "HBase, table photon_tables"
    silent = replace(TABLES, oracle_problem="replica r1: not the leader")
    assert "there are no timestamps" in only("tables", Level.PROBLEM, tables=silent).what
    stuck = replace(TABLES, stuck=3, stuck_at="clicks/k1/print")
    assert (
        "3 cells wait for observers, and clicks/k1/print goes on" in only("tables", Level.WARNING, tables=stuck).what
    )
    left = replace(TABLES, old_locks=["clicks/k1/print", "clicks/k2/print"])
    assert "2 locks of dead or slow clients: clicks/k1/print" in only("tables", Level.WARNING, tables=left).what
    old = replace(TABLES, safe_point_s=3 * 3600.0 + 1)
    assert "moved 3 h 0 min ago: old versions" in only("tables", Level.WARNING, tables=old).what
    only("tables", Level.OK, tables=replace(old, observed=False))


def test_output_that_readers_stop_at_and_output_that_they_skip() -> None:
    short = OutputRange(
        "east", "/e/output/joined/east-1-000004.jsonl", 90, 1200, "has 90 bytes, but 1200 were published"
    )
    problem = only("output", Level.PROBLEM, ranges=(short,))
    assert problem.what == (
        "has 90 bytes, but 1200 were published; readers that have not read its bytes 90 to 1,200 stop there"
    )
    assert "photon spark verify, then photon spark recover" in problem.do
    gone = only("output", Level.WARNING, ranges=(replace(short, start=0, why="is gone", moved=True),))
    assert gone.what.startswith("is gone: archived, or lost; ")
    skipped = only("output", Level.OK, ranges=(replace(short, marked="2026-11-28T00:00:00+00:00"),))
    assert "readers skip 1 damaged range: /e/output/joined/east-1-000004.jsonl from 90 to 1,200" in skipped.what
