"""A day's shape, its faults, its counts, and the page."""

from __future__ import annotations

import copy
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.results import BenchmarkFailed
from bench.service_level import day, page, rows
from bench.service_level.overload import problems
from bench.service_level.rows import LATE_NS, Absence, Grown, Judged, absences, binned, steps
from bench.service_level.shape import AFTER_S, BEFORE_S, faults, pace
from photon.config.metrics.families import Family, Sample
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Heard
from photon.fleet.processes import of_datacentre
from photon.lab.chaos.api import Do, Step
from photon.lab.chaos.report import Seen
from photon.lab.chaos.run import UNDONE
from photon.lab.chaos.topology import Topology, too_much
from photon.lab.demo.generator import Generator
from photon.lab.latency import Verdict
from tests.unit.lab.chaos.places import REPLICAS

DATACENTRES = {"east": "east", "west": "west"}
PROCESSES = {**REPLICAS, "datacentre east": "east", "datacentre west": "west"}
TOPOLOGY = Topology(REPLICAS, DATACENTRES, PROCESSES, ("central", "east", "west"))
S = 1_000_000_000


def test_a_day_offers_its_mean_with_the_peak_in_its_middle() -> None:
    generator = Generator(1, clicks=1000, seconds=100.0, queries_per_click=2, pace=pace(100.0))
    begins = [begin / 1e6 for begin, _ in generator.rounds()]
    assert begins[-1] == pytest.approx(100.0, abs=1.0)
    night, peak = (sum(at <= begin < at + 10 for begin in begins) for at in (0, 45))
    assert night < 40
    assert peak > 160


@pytest.mark.parametrize("seconds", [150.0, 300.0, 1800.0])
def test_a_day_has_all_kinds_of_faults_and_never_too_many_at_once(seconds: float) -> None:
    kinds = set()
    for seed in range(50):
        plan = faults(seed, seconds, TOPOLOGY, 4)
        assert plan == faults(seed, seconds, TOPOLOGY, 4)
        assert too_much(plan, TOPOLOGY) == ""
        for step in plan:
            TOPOLOGY.check(step)
        assert [step.do for step in plan].count(Do.RESHARD) == 1
        [away] = [step for step in plan if step.do is Do.AWAY]
        alone = [step for step in plan if step.end_s > away.at_s - BEFORE_S and step.at_s < away.end_s + AFTER_S]
        assert alone == [away]
        assert max(step.end_s for step in plan) < seconds
        kinds |= {step.do for step in plan}
    assert kinds == {Do.KILL, Do.PAUSE, Do.CUT, Do.LOSS, Do.DELAY, Do.RESTART, Do.AWAY, Do.RESHARD}


def test_percentiles_are_of_those_written_in_a_bin() -> None:
    verdicts = [Verdict(S + at, S + at + 1_000_000 * at, joined=True) for at in range(1, 100)]
    verdicts.append(Verdict(S + 5, 90 * S, joined=False))
    found = binned([0, S, S + 50, 2 * S], verdicts)
    assert found["p50"] == [None, 25, 74]
    assert found["p99"][2] == pytest.approx(99, abs=1)
    assert steps([3, 5, 5, 2]) == [2, 0, 0]


def test_only_what_a_lost_datacentre_had_made_and_showed_on_its_return_is_excepted() -> None:
    absent = [Absence("west", 100 * S, 103 * S)]

    def late(made_s: int, seen_s: int, datacentre: str = "west") -> list[Verdict]:
        return Judged([Verdict(50 * S, seen_s * S, True, made_s * S, "a", datacentre)], absent).owned

    assert late(52, 104)
    assert not late(52, 104, "east")  # the other one was there
    assert not late(101, 104)  # made after the return
    assert not late(52, 99)  # shown before
    assert not late(52, 114)  # 10 s after the return nothing is excused
    assert not Judged([Verdict(99 * S, 104 * S, True, 99 * S, "a", "west")], absent).owned  # in time


def test_late_events_of_others_are_counted_and_their_slowest_named() -> None:
    slow = [Verdict(0, at * S, True, at * S, f"e{at}", "west") for at in (1, 11, 30, 61)]
    lost = [Verdict(0, 104 * S, True, 1, "lost", "west"), Verdict(0, 300 * S, False)]
    judged = Judged([*slow, *lost], [Absence("west", 100 * S, 103 * S)])
    assert judged.late() == {"owned": 1, "owned_max_s": 104.0, "others": 3, "others_60": 1, "others_max_s": 61.0}
    assert [each.event for each in judged.slowest(2)] == ["e61", "e30"]


def test_a_datacentre_is_absent_until_it_answers_again() -> None:
    steps = [
        Step(5.0, 0.0, Do.KILL, ("datacentre west",)),
        Step(9.0, 4.0, Do.AWAY, ("west",)),
        Step(20.0, 4.0, Do.PAUSE, ("registry r1",)),
        Step(20.0, 0.0, Do.RESTART, ("datacentre west",)),
    ]
    spans = [(5 * S, 6 * S), (9 * S, 13 * S), (20 * S, 24 * S), (20 * S, 24 * S)]
    seen = [Seen(at, up, 0, 0, 0) for at, up in ((5.5, True), (6.5, False), (7.0, True), (15.0, True))]
    found = absences(steps, spans, {"west": seen}, 0)
    assert found == [Absence("west", 6 * S, 7 * S), Absence("west", 13 * S, 15 * S)]


def test_a_day_keeps_the_promise_or_not() -> None:
    late = {"owned": 10, "others": 10, "others_60": 0}
    row = {"events": 100_010, "outstanding": 0, "late": late}
    assert page.kept(row)
    for wrong in ({"outstanding": 1}, {"late": {**late, "others": 11}}, {"late": {**late, "others_60": 1}}):
        assert not page.kept({**row, **wrong})
    assert LATE_NS == 10 * S


def test_a_counter_that_begins_again_goes_on() -> None:
    process = of_datacentre("eventstore", "east", "east", "localhost:1")
    grown = Grown()
    for hits in (100, 130, 20, 25):
        sample = Sample("photon_eventstore_cache_hits_total", {}, hits)
        grown.take(Numbers([Heard(process, [Family("hits", "", "counter", (sample,))])]))
    assert grown.total["hits"] == 55


def test_rows_are_kept_one_a_line_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows.append({"kind": "day"}, path)
    rows.append({"kind": "overload"}, path)
    with open(path, "ab") as file:
        file.write(b'{"version":1,"ki')
    assert [row["kind"] for row in rows.read(path)] == ["day", "overload"]


def test_who_died_or_grew_is_a_problem() -> None:
    process = {"limit_mib": 512, "resident_mib": 90, "restarts": 0, "up": True}
    assert problems({"lost": 0, "processes": {"joiner east-1": process}}) == []
    bad = {"lost": 3, "processes": {"joiner east-1": {**process, "resident_mib": 600, "restarts": 2, "up": False}}}
    assert len(problems(bad)) == 4


def test_a_day_without_its_faults_is_a_problem() -> None:
    lost, undone = "2 clicks lost", f"{UNDONE}kill joiner east-1: no such process"
    assert day.problems([lost, undone], 2) == [lost]
    assert day.problems([undone, undone], 3) == ["2 of 3 faults could not be injected"]


def test_a_day_whose_writer_stood_still_is_not_measured() -> None:
    day.check_writer(2.9)
    with pytest.raises(BenchmarkFailed, match="stalled"):
        day.check_writer(6.5)


def test_the_page_is_what_the_kept_rows_give() -> None:
    assert page.stale() == [], "run: python -m bench.service_level draw"


def test_what_was_wrong_is_shown_and_all_charts_can_be_drawn() -> None:
    kept = rows.read()
    wrong = copy.deepcopy(next(row for row in kept if row["kind"] == rows.DAY))
    wrong["problems"] = ["2 clicks lost"]
    found = page.render([*kept, wrong])
    assert "2 clicks lost" in found[page.PAGE]
    charts = {name: text for name, text in found.items() if name.endswith(".svg")}
    assert len(charts) == 7 + 3 * any(row["kind"] == rows.OVERLOAD for row in kept)
    for text in charts.values():
        ElementTree.fromstring(text)
    assert "Not measured yet" in page.render([])[page.PAGE]
