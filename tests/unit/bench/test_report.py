"""Tables, plots and kept results."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

from bench import computations, goals, report
from bench.catch_up import GROUP, PHOTON, PHOTON_ALONE, row_name
from bench.results import BenchmarkFailed, Results, Round, Row, run_round
from bench.svg import Axis, Series, chart, ticks
from bench.workload import Size

SIZE = Size(100_000)


def _row(system: str, *walls: float, problem: str = "") -> Row:
    settings = {"system": system, "size": SIZE.words(), "survives": "yes"}
    rounds = [Round({"wall_s": wall, "clicks_s": 1 / wall, "cpu_s": 1.0, "peak_mib": 10}, 0.5) for wall in walls]
    return Row(GROUP, row_name(system, SIZE), "command", settings, rounds=rounds, problem=problem)


def test_the_page_is_what_the_kept_results_give() -> None:
    assert report.stale() == [], "run: python -m bench.report"


def test_a_table_has_medians_and_says_who_has_no_figure() -> None:
    rows = [_row(PHOTON, 3.0, 9.0, 4.0), _row("Flink SQL", 40.0), _row("Polars", problem="could not be installed")]
    page = report.render(rows)["benchmarks.md"]
    assert f"| **{PHOTON}** | 4.00 (3.00) |" in page
    assert "| Polars | could not be installed |" in page
    assert "| DuckDB | not measured yet |" in page
    goal = "1 M + 100 k: 9 × the speed of the best stream processor with exactly-once output"
    assert f"| {goal} | 10.0 × Flink SQL | yes |" in page


def test_computations_are_compared_with_bytewax() -> None:
    def row(system: str, task: str, keys: int, cpu_s: float, peak_mib: float = 10.0) -> Row:
        return _measured(computations.GROUP, computations.row_name(system, task, keys), cpu_s=cpu_s, wall_s=1.0,
                         peak_mib=peak_mib)  # fmt: skip

    page = report.render([
        row("Photon", "totals", 1_000, 3.0), row(computations.BYTEWAX, "totals", 1_000, 2.0),
        row("Photon", "windows", 1_000, 3.0), row(computations.BYTEWAX, "windows", 1_000, 4.0),
        row("Photon", "totals", computations.LARGE, 9.0, 599.0),
    ])["benchmarks/computations.md"]  # fmt: skip
    assert "| totals, 1,000 | 3.0/1/10 | 2.0/1/10 | – | – | 1.50 (2) |" in page
    assert "| windows, 1,000 | 3.0/1/10 | 4.0/1/10 | – | – | **0.75** (0.5) |" in page
    assert "| totals, 1,000,000 | 9.0/1/599 |  |  |  | 599 (600) |" in page


def _measured(group: str, name: str, **figures: float) -> Row:
    return Row(group, name, "command", rounds=[Round(figures, 0.5)])


def test_a_goal_is_reached_or_not() -> None:
    rows = [
        _row(PHOTON, 10.0), _row("plain Python", 4.0), _row("Bytewax, recovery on", 60.0), _row("Flink SQL", 49.0),
        _row(PHOTON_ALONE, 5.0),
        _measured(GROUP, row_name(PHOTON, goals.SIZES[1]), peak_mib=701.0),
        _measured("live", "100 clicks/s, 60 s, together", cores=0.3, p50_ms=9.0, p99_ms=49.0),
        _measured("live", "2,000 clicks/s, 60 s, together", cores=0.81, p50_ms=20.0, p99_ms=151.0),
        _measured("live", "2,000 clicks/s, 60 s, replicas 100 ms apart", p50_ms=149.0, p99_ms=999.0),
        _measured("sustained", "33,334 clicks/s, 300 s", joined_s=20_000.0, growth=0.0, offered_s=21_000.0),
        _measured("restart", "kill -9 under load", joiner_pause_s=1.9, everything_from_start_s=4.0),
        _measured("growth-size", "size 1", cpu_s=10.0), _measured("growth-size", "size 10", cpu_s=120.0),
        _measured("growth-files", "files 10", cpu_s=10.0), _measured("growth-files", "files 5000", cpu_s=20.0),
    ]  # fmt: skip
    said = {goal: (measured, reached) for goal, measured, reached in goals.lines(rows)}
    starts = {
        "1 M + 100 k: 9 ×": ("4.9 × Flink SQL", "**no**"),
        "1 M + 100 k: within": ("2.5 × its time", "**no**"),
        "memory": ("10 MiB, 701 MiB, all processes", "at these sizes"),
        "2,000,000 joined": ("1,200,000 a minute of 2,000,040 offered", "**no**"),
        "1 M + 100 k: with one": ("1.2 × its time", "yes"),
        "10 M + 1 M: at most 600 MiB": ("701 MiB", "**no**"),
        "latency at 2,000 clicks/s, together:": ("p50 20 ms, p99 151 ms", "**no**"),
        "latency at 100 clicks/s, together": ("p50 9 ms, p99 49 ms", "yes"),
        "CPU at 2,000 clicks/s": ("0.81 cores", "**no**"),
        "CPU at 100 clicks/s": ("0.30 cores", "yes"),
        "latency at 2,000 clicks/s with": ("p50 149 ms, p99 999 ms", "yes"),
        "kill -9": ("1.9 s", "yes"),
        "start of all": ("4.0 s", "**no**"),
        "registered": ("", ""),
        "growth over size": ("1.20 × the CPU time for each click", "**no**"),
        "growth over files": ("2.00 × the CPU time", "yes"),
        "growth over joiners": ("", ""),
    }
    for start, expected in starts.items():
        assert [said[goal] for goal in said if goal.startswith(start)] == [expected], start


def test_a_page_without_results_names_everything_that_is_to_be_measured() -> None:
    texts = report.render([])
    assert list(texts) == ["benchmarks.md", "benchmarks/computations.md"]
    assert "Nothing has been measured yet." in texts["benchmarks.md"]
    assert texts["benchmarks.md"].count("not measured yet") > 30


def test_a_run_that_was_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    def failing() -> dict[str, float]:
        raise BenchmarkFailed("no room")

    def row() -> Row:
        return Results(tmp_path).row("g", "some name, 1 M", "command")

    assert run_round(Results(tmp_path), row(), 1, failing)
    assert row().problem == "no room"
    assert run_round(Results(tmp_path), row(), 1, lambda: {"wall_s": 2.0})
    assert not run_round(Results(tmp_path), row(), 1, failing)
    assert run_round(Results(tmp_path), row(), 2, lambda: {"wall_s": 4.0})
    assert (row().problem, row().median("wall_s"), row().least("wall_s")) == ("", 3.0, 2.0)
    assert [each.name for each in Results(tmp_path).rows()] == ["some name, 1 M"]


def test_a_chart_is_a_picture_with_every_point() -> None:
    drawn = chart("a < b", Axis("x", log=True), Axis("y"), [Series("one", [(10, 0.5), (5000, 2.5)])])
    assert drawn == chart("a < b", Axis("x", log=True), Axis("y"), [Series("one", [(10, 0.5), (5000, 2.5)])])
    assert len(ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_ticks_are_round_and_few() -> None:
    assert ticks(10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0) == [0, 1]
    for highest in (0.3, 7, 99, 1234):
        assert 3 < len(ticks(highest)) <= 8
        assert ticks(highest)[-1] >= highest


def test_what_a_command_s_children_took_is_counted(tmp_path: Path) -> None:
    from bench.measure import measure

    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(5_000_000))'], check=True)"
    took = measure([sys.executable, "-c", script], scratch=tmp_path)
    assert took.code == 0
    assert took.cpu_s > 0.05
    assert measure(["sh", "-c", "echo why >&2; exit 3"], scratch=tmp_path).error == "why"
