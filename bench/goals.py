"""The project's goals on two cores, next to the measurements: a line for each goal, reached or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.catch_up import GROUP, PHOTON, PHOTON_ALONE, SYSTEMS, row_name
from bench.growth import POINTS
from bench.growth import group as growth_group
from bench.live import GOAL_RATE, GROWS, LATE, LATENCY, SUSTAINED
from bench.live import row_name as live_name
from bench.restart import CATCH_UP, KILL9
from bench.restart import GROUP as RESTART
from bench.results import Row
from bench.workload import Size

SIZES = (Size(100_000), Size(1_000_000))
MEMORY_MIB = 1.5e9 / 2**20
# Multiples of plain Python's wall time: with three replicas, with one.
TIMES_PLAIN: Mapping[Size, tuple[float, float]] = {SIZES[0]: (1.7, 1.3), SIZES[1]: (1.2, 1.0)}
LINEAR = 1.1  # cost per unit at the largest point of a curve relative to the smallest: noise is no growth
REGISTRY = "registry: conditional inserts a second next to etcd, three replicas with fsync"
Line = tuple[str, str, str]  # goal, measurement, whether it is reached; the latter two empty if not measured

Found = Mapping[tuple[str, str], Row]


def lines(rows: Sequence[Row]) -> list[Line]:
    """Returns the lines of the table, in the order of the goals."""
    found: Found = {(row.group, row.name): row for row in rows}
    return [
        *(line for size in SIZES for line in _catch_up(found, size)),
        _memory(found),
        _peak(found, GROUP, row_name(PHOTON, SIZES[1]), SIZES[1].words(), 600),
        _sustained(found),
        _latency(found, ", together", "2,000 clicks/s, 60 s, together", 60, 150),
        _latency(found, ", together, latency = 0", "2,000 clicks/s, 60 s, together, latency 0 ms", 15, 60),
        _latency(found, " with replicas 100 ms apart", "2,000 clicks/s, 60 s, replicas 100 ms apart", 150, 1000),
        _latency(found, ", together", "100 clicks/s, 60 s, together", 60, 150, rate=100),
        _cores(found, 2_000, "2,000 clicks/s, 60 s, together", 0.8),
        _cores(found, 100, "100 clicks/s, 60 s, together", 0.3),
        *_late(found),
        (REGISTRY, "[components](../bench/README.md#the-idregistry-next-to-etcd)", "–"),
        _at_most(found, "kill -9 of a joiner to the next joined line: 2 s", "joiner_pause_s", 2.0),
        _at_most(found, "start of all that was killed to the first joined line: 2 s", "everything_from_start_s", 2.0),
        _at_least(found, "registered events caught up with 5 × as fast as joined", "ratio", 5.0),
        *(_growth(found, axis) for axis in POINTS),
    ]  # fmt: skip


def borne(row: Row, rate: float) -> bool:
    """True if the whole load could be written and the backlog did not grow."""
    offered, growth = row.median("offered_s"), row.median("growth")
    return offered is not None and growth is not None and growth < GROWS and offered >= (1 - GROWS) * rate


def _best_stream(found: Found, size: Size) -> tuple[float, str] | None:
    """Returns seconds and name of the fastest stream processor with exactly-once output."""
    took = ((_median(found, GROUP, row_name(s.name, size), "wall_s"), s.name) for s in SYSTEMS if s.streaming)
    return min(((wall, name) for wall, name in took if wall is not None), default=None)


def _median(found: Found, group: str, name: str, figure: str) -> float | None:
    row = found.get((group, name))
    return row.median(figure) if row else None


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _catch_up(found: Found, size: Size) -> list[Line]:
    def wall(system: str) -> float | None:
        return _median(found, GROUP, row_name(system, size), "wall_s")

    own, alone, plain, duckdb = wall(PHOTON), wall(PHOTON_ALONE), wall("plain Python"), wall("DuckDB")
    best, name = _best_stream(found, size) or (None, "")
    within, within_alone = TIMES_PLAIN[size]

    def line(goal: str, ratio: float | None, said: str, reached: Callable[[float], str]) -> Line:
        goal = f"{size.words()}: {goal}"
        return (goal, "", "") if ratio is None else (goal, f"{ratio:.1f} × {said}", reached(ratio))

    faster, plain_times = _ratio(best, own), _ratio(own, plain)
    stream = "× the speed of the best stream processor with exactly-once output"
    return [
        line(f"9 {stream}", faster, name, lambda ratio: _yes(ratio >= 9)),
        line(
            f"within {within:g} × plain Python's time", plain_times, "its time", lambda ratio: _yes(ratio <= within)
        ),
        line(
            f"with one replica within {within_alone:g} ×",
            _ratio(alone, plain),
            "its time",
            lambda ratio: _yes(ratio <= within_alone),
        ),
        line("how close to DuckDB, which is no stream processor", _ratio(own, duckdb), "its time", lambda ratio: "–"),
    ]


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _memory(found: Found) -> Line:
    goal = "memory below 1.5 GB at any size"
    peaks = [_median(found, GROUP, row_name(PHOTON, size), "peak_mib") for size in SIZES]
    known = [peak for peak in peaks if peak is not None]
    if len(known) < len(SIZES):
        return goal, "", ""
    reached = "at these sizes" if max(known) < MEMORY_MIB else _yes(False)  # two points say nothing about a third
    return goal, f"{', '.join(f'{peak:,.0f} MiB' for peak in known)}, all processes", reached


def _sustained(found: Found) -> Line:
    goal = "2,000,000 joined clicks a minute for 5 minutes, lag not growing"
    row = found.get((SUSTAINED, f"{GOAL_RATE:,} clicks/s, 300 s"))
    joined = row.median("joined_s") if row else None
    if row is None or joined is None:
        return goal, row.problem if row else "", _yes(False) if row and row.problem else ""
    return goal, f"{joined * 60:,.0f} a minute of {GOAL_RATE * 60:,} offered", _yes(borne(row, GOAL_RATE))


def _latency(found: Found, where: str, name: str, middle: float, most: float, *, rate: int = 2_000) -> Line:
    goal = f"latency at {rate:,} clicks/s{where}: p50 below {middle:g} ms, p99 below {most:g} ms"
    p50, p99 = (_median(found, LATENCY, name, f"p{share}_ms") for share in (50, 99))
    if p50 is None or p99 is None:
        return goal, "", ""
    return goal, f"p50 {p50:,.0f} ms, p99 {p99:,.0f} ms", _yes(p50 < middle and p99 < most)


def _cores(found: Found, rate: int, name: str, most: float) -> Line:
    goal = f"CPU at {rate:,} clicks/s, together, three replicas: at most {most:g} cores"
    cores = _median(found, LATENCY, name, "cores")
    return (goal, "", "") if cores is None else (goal, f"{cores:.2f} cores", _yes(cores <= most))


def _peak(found: Found, group: str, name: str, what: str, most: float) -> Line:
    goal = f"{what}: at most {most:g} MiB, all processes"
    peak = _median(found, group, name, "peak_mib")
    return (goal, "", "") if peak is None else (goal, f"{peak:,.0f} MiB", _yes(peak <= most))


def _late(found: Found) -> list[Line]:
    name = live_name(LATE)
    p99, back_s = (_median(found, LATENCY, name, figure) for figure in ("p99_ms", "back_s"))
    goal = "20 % of 2,000 clicks/s 1 to 10 s before their query, 100,000 that wait in vain: p99 below 100 ms"
    back = "the same, everything started again: what waited is joined within 2 s of being up"
    return [
        (goal, "", "") if p99 is None else (goal, f"{p99:,.0f} ms", _yes(p99 < 100)),
        (back, "", "") if back_s is None else (back, f"{back_s:.1f} s", _yes(back_s < 2)),
    ]


def _at_most(found: Found, goal: str, figure: str, most: float) -> Line:
    value = _median(found, RESTART, KILL9, figure)
    return (goal, "", "") if value is None else (goal, f"{value:.1f} s", _yes(value < most))


def _at_least(found: Found, goal: str, figure: str, least: float) -> Line:
    value = _median(found, RESTART, CATCH_UP, figure)
    return (goal, "", "") if value is None else (goal, f"{value:.1f} ×", _yes(value >= least))


def _growth(found: Found, axis: str) -> Line:
    """Compares along an axis: for *size* the CPU seconds per click, otherwise the seconds for the same clicks."""
    first, last = POINTS[axis][0], POINTS[axis][-1]
    goal = f"growth over {axis}, {first:,} to {last:,}: linear or better"
    few, many = (_median(found, growth_group(axis), f"{axis} {point}", "cpu_s") for point in (first, last))
    if few is None or many is None:
        return goal, "", ""
    times, larger = many / few, last / first
    shown = f"{times / larger:.2f} × the CPU time for each click" if axis == "size" else f"{times:.2f} × the CPU time"
    return goal, shown, _yes(times <= LINEAR * larger)
