"""``docs/benchmarks.md`` with its plots, from ``bench/results.json``:
``python -m bench.report [--from DIR] [--check]``.

``--from``: first imports the rows of a run. Each planned measurement has a line, even without figures. Pure except
for ``publish`` and ``main``: a test compares the page with this output.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench import goals
from bench.catch_up import GROUP, PHOTON, SYSTEMS
from bench.computations import BYTEWAX, KEYS, LARGE, TASKS
from bench.computations import GROUP as COMPUTATIONS
from bench.computations import PHOTON as COMPUTING
from bench.computations import SYSTEMS as COMPUTERS
from bench.computations import row_name as computed
from bench.growth import POINTS
from bench.growth import group as growth_group
from bench.live import CURVE, GOAL_RATE, LATE, LATENCY, LIVE, SUSTAINED, row_name
from bench.restart import CATCH_UP, KILL9
from bench.restart import GROUP as RESTART
from bench.results import Results, Row, read_row
from bench.sustained import CURVE_GROUP
from bench.svg import Axis, Series, chart

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "bench" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "benchmarks"
NOT_YET = "not measured yet"
CURVE_PLOT = "latency-over-load"
HEAD = """\
# Benchmarks

<!-- Written by `python -m bench.report` from `bench/results.json`: change those. -->

Photon as a whole on one machine, next to other systems on the same sets in the same run. `make bench` is a short
form (some minutes); `make bench-full` measures everything (hours, on a machine that does nothing else), writes this
page, and continues where it was interrupted. Compare within a table. Single parts, also next to etcd: [Benchmarks
of components](../bench/README.md). Every test run counts the calls of the hot path for an event and compares
them with `bench/counts.json`; `make bench-counts` accepts new ones.
"""
GOALS_TEXT = """\
## Goals

For two cores, in medians of the tables below. What limits the rest: [What limits the speed](../bench/README.md).
"""
CATCH_UP_TEXT = """\
## Catch-up

Finished logs, joined from nothing, start-up included: queries of 280 bytes and a tenth as many clicks as JSON Lines
in 20 files a side. 2 % of the clicks name no existing query, 1 % of their lines come twice, 5 % come before their
query, the rest minutes to hours after it. Systems take turns; medians of rounds; CPU and memory of all processes.
With three replicas it is `photon up` until the last joined line is in the output; others run until they end.
Everybody parses both sides and writes whole pairs; each output is compared with the truth. `photon join --once` of
two files of 50 lines takes 0.69 s, 0.66 s of CPU. `python -m bench.catch_up --systems NAME` runs one system; its
scripts are in `bench/peers/`. *Survives kill -9*: nothing is lost or doubled by a kill and a restart.
"""
LIVE_TEXT = """\
## Latency

One datacentre under `photon up`, three registry replicas, clicks and ten times as many queries written into growing
logs. Latency is from the end of the write of a click's line (or its query's line, where that comes later: 5 %)
until its joined line is in the output, where it survives any kill. *Query first*: only clicks whose query came
before them. *Published*: until readers are shown it. *Together*: event store, joiner, verifier and dispatcher in
one process. A figure appears only if every click came out once with the right query. Peers were not run live.
"""
LATE_TEXT = """\
### Late queries

Of the same 2,000 clicks a second 20 % are written 1 to 10 s before their query (*early*), while 100,000 clicks that
name no query wait. *Back*: everything is killed, the queries of 1,000 waiting clicks are written, and all is
restarted; the time from being up until these are joined.
"""
SUSTAINED_TEXT = """\
## Sustained load

The same deployment at rising loads, ten queries a click, and at two million clicks a minute for five minutes. A
load is borne when all of it could be written, the backlog did not grow (by less than 1 % of the load), and every
click came out once. The generator runs on the same cores. `python -m bench.sustained`.
"""
RESTART_TEXT = """\
## Kill -9, and back

`python -m bench.restart`: processes are killed under 1,000 clicks a second and restarted by `photon up`; the
longest time without a joined line. In the last row `photon up` and all its processes are killed, the registry's as
well, and started again.
"""
GROWTH_TEXT = """\
## Growth

`python -m bench.growth`: a deployment that finds all logs at once. All processes share two cores: the curves show
what more of them cost, not what they would bring with cores of their own.
"""
REGISTRY_TEXT = """\
## Registry

Conditional inserts a second next to etcd, also with replicas 100 ms apart: [Benchmarks of
components](../bench/README.md), `make bench-registry`.
"""
COMPUTATIONS_TEXT = """\
# Computations: benchmarks

<!-- Written by `python -m bench.report` from `bench/results.json`: change those. -->

[Computations](../computations.md) next to Bytewax and Flink, over the same JSON lines: totals by key, and windows of
a minute; start-up included, results checked. `python -m bench full --only computations`

CPU seconds/wall seconds/peak MiB. Compare CPU, as the machine did other work:
"""
COMPUTATION_GOALS = dict(zip(TASKS, (2.0, 0.5), strict=True))  # times Bytewax's CPU, at most
LARGE_MIB = 600.0


def render(rows: Sequence[Row]) -> dict[str, str]:
    """Returns the text of each file, by its path below ``docs/``."""
    found = {(row.group, row.name): row for row in rows}
    plots = _plots(rows)
    met = [(goal, measured or NOT_YET, reached) for goal, measured, reached in goals.lines(rows)]
    parts = [
        HEAD,
        _measured_on([row for row in rows if row.group != COMPUTATIONS]),
        GOALS_TEXT,
        table(("goal", "measured", "reached"), met),
        CATCH_UP_TEXT,
    ]
    for size in goals.SIZES:
        parts += [f"### {size.words()}\n", catch_up_table(rows, size.words(), complete=True)]
    pictures = {name: f"![{name}](benchmarks/{name}.svg)\n" for name in plots}
    parts += [
        LIVE_TEXT,
        _live(found),
        LATE_TEXT,
        _late(found),
        SUSTAINED_TEXT,
        _curve(rows),
        pictures.pop(CURVE_PLOT, ""),
    ]
    parts += [RESTART_TEXT, _restart(found), GROWTH_TEXT, *pictures.values()]
    parts.append(REGISTRY_TEXT)
    if missing := [f"{axis} {point}" for axis, points in POINTS.items() for point in points
                   if not _has(found.get((growth_group(axis), f"{axis} {point}")))]:  # fmt: skip
        parts.append(f"{NOT_YET.capitalize()}: {', '.join(missing)}.\n")
    return {
        "benchmarks.md": "\n".join(part for part in parts if part),
        "benchmarks/computations.md": _computations(found, [row for row in rows if row.group == COMPUTATIONS]),
        **{f"benchmarks/{n}.svg": t for n, t in plots.items()},
    }


def _has(row: Row | None) -> bool:
    return row is not None and bool(row.rounds)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """The table as Markdown."""
    rows = [list(head), ["---"] * len(head), *map(list, lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def figure(value: float | None, form: str = ",.0f") -> str:
    """Formats a figure; a dash if there is none."""
    return "–" if value is None else format(value, form)


def _measured_on(rows: Sequence[Row]) -> str:
    form = "{cores} cores ({cpu}), {memory}, Linux {kernel}, Python {python}"
    machines = sorted({form.format(**row.machine) for row in rows if row.machine})
    if not machines:
        return "Nothing has been measured yet.\n"
    loads = [each.load for row in rows for each in row.rounds]
    load = f" Load average before the runs: {min(loads):g} to {max(loads):g}." if loads else ""
    versions = sorted({f"{name} {version}" for row in rows for name, version in row.versions.items()})
    return f"Measured on {'; and on '.join(machines)}.{load} Versions: {', '.join(versions)}.\n"


def _ordered(rows: Sequence[Row], size: str) -> list[Row]:
    chosen = [row for row in rows if row.group == GROUP and row.settings.get("size") == size]
    return sorted(chosen, key=lambda row: (row.median("wall_s") is None, row.median("wall_s") or 0.0, row.name))


def catch_up_table(rows: Sequence[Row], size: str, *, complete: bool = False) -> str:
    """Makes the table of all systems' times; ``complete``: include systems that have no row yet."""
    head = ("system", "wall s, median (least)", "clicks/s", "CPU s", "peak MiB", "rounds", "survives kill -9")
    lines = []
    named = set()
    for row in _ordered(rows, size):
        system = row.settings["system"]
        named.add(system)
        shown = f"**{system}**" if system == PHOTON else system
        wall = row.median("wall_s")
        if wall is None:
            lines.append((shown, row.problem or NOT_YET, "", "", "", "0", row.settings["survives"]))
            continue
        lines.append(
            (
                shown,
                f"{wall:,.2f} ({figure(row.least('wall_s'), ',.2f')})",
                figure(row.median("clicks_s")),
                figure(row.median("cpu_s"), ",.1f"),
                figure(row.median("peak_mib")),
                str(len(row.rounds)),
                row.settings["survives"],
            )
        )
    if complete:
        lines += [(s.name, NOT_YET, "", "", "", "0", s.survives) for s in SYSTEMS if s.name not in named]
    return table(head, lines)


def _live(found: Mapping[tuple[str, str], Row]) -> str:
    lines = []
    for load in LIVE:
        if load is LATE:
            continue
        name = row_name(load)
        shown = name.replace(f", {load.seconds:g} s", "")
        row = found.get((LATENCY, name)) or Row(LATENCY, name, "")
        if not row.rounds:
            lines.append((shown, row.problem or NOT_YET, "", "", "", "", "`python -m bench.live`"))
            continue
        lines.append(
            (
                shown,
                _three(row, ""),
                _three(row, "in_order_"),
                _three(row, "published_"),
                figure(row.median("cores"), ".2f"),
                figure(row.median("peak_mib")),
                f"`{row.command}`",
            )
        )
    return table(
        ("", "p50 / p90 / p99 ms", "query first, ms", "published, ms", "cores busy", "peak MiB", "command"), lines
    )


def _late(found: Mapping[tuple[str, str], Row]) -> str:
    row = found.get((LATENCY, row_name(LATE))) or Row(LATENCY, row_name(LATE), "")
    head = ("p50 / p90 / p99 ms", "early, ms", "back, s", "cores busy", "command")
    if not row.rounds:
        command = f"python -m bench.live --early {100 * LATE.early:g} --hopeless {LATE.hopeless}"
        return table(head, [(row.problem or NOT_YET, "", "", "", f"`{command}`")])
    figures = figure(row.median("back_s"), ".2f"), figure(row.median("cores"), ".2f")
    return table(head, [(_three(row, ""), _three(row, "before_"), *figures, f"`{row.command}`")])


def _computations(found: Mapping[tuple[str, str], Row], rows: Sequence[Row]) -> str:
    lines = []
    for task in TASKS:
        for keys in KEYS:
            named = {each.name: found.get((COMPUTATIONS, computed(each.name, task, keys))) for each in COMPUTERS}
            own, peer = (row and row.median("cpu_s") for row in (named[COMPUTING], named[BYTEWAX]))
            ratio = own / peer if own and peer else None
            shown = map(_computed, named.values())
            lines.append((f"{task}, {keys:,}", *shown, _reached(ratio, COMPUTATION_GOALS[task], ".2f")))
    large = found.get((COMPUTATIONS, computed(COMPUTING, TASKS[0], LARGE)))
    peak = None if large is None else large.median("peak_mib")
    empty = [""] * (len(COMPUTERS) - 1)
    lines.append((f"{TASKS[0]}, {LARGE:,}", _computed(large), *empty, _reached(peak, LARGE_MIB, ".0f")))
    head = ("keys", *(system.name for system in COMPUTERS), "CPU/Bytewax's, or MiB (goal)")
    return "\n".join((COMPUTATIONS_TEXT, table(head, lines), _measured_on(rows)))


def _computed(row: Row | None) -> str:
    if row is None or not row.rounds:
        return (row.problem if row else "") or "–"
    return "/".join(figure(row.median(name), form) for name, form in
                    (("cpu_s", ",.1f"), ("wall_s", ",.0f"), ("peak_mib", ",.0f")))  # fmt: skip


def _reached(measured: float | None, goal: float, form: str) -> str:
    if measured is None:
        return f"– ({goal:g})"
    shown = figure(measured, form)
    return f"{shown if measured <= goal else f'**{shown}**'} ({goal:g})"


def _three(row: Row, name: str) -> str:
    return " / ".join(figure(row.median(f"{name}p{share}_ms"), ",.1f") for share in (50, 90, 99))


def _curve(rows: Sequence[Row]) -> str:
    measured = {
        (row.group, float(row.settings["rate"])): row for row in rows if row.group in (CURVE_GROUP, SUSTAINED)
    }
    lines = []
    for group, rate in [*((CURVE_GROUP, rate) for rate in CURVE), (SUSTAINED, GOAL_RATE)]:
        row = measured.get((group, float(rate)))
        shown = f"{rate:,}" + (", 5 min" if group == SUSTAINED else "")
        if row is None or not row.rounds:
            lines.append((shown, (row.problem if row else "") or NOT_YET, "", "", "", ""))
            continue
        lines.append(
            (
                shown,
                figure(row.median("offered_s")),
                figure(row.median("joined_s")),
                _three(row, ""),
                "yes" if goals.borne(row, rate) else "no",
                figure(row.median("cores"), ".2f"),
            )
        )
    return table(("clicks/s", "written/s", "joined/s", "p50 / p90 / p99 ms", "borne", "cores busy"), lines)


def _restart(found: Mapping[tuple[str, str], Row]) -> str:
    killed = found.get((RESTART, KILL9)) or Row(RESTART, KILL9, "")
    scenes = (
        ("the joiner", "joiner_pause_s"), ("the dispatcher", "dispatcher_pause_s"),
        ("the event store", "eventstore_pause_s"), ("all three and the verifier", "pipeline_pause_s"),
        ("everything; from the new start to the first joined line", "everything_from_start_s"),
    )  # fmt: skip
    lines = [
        (shown, figure(killed.median(name), ".2f") if killed.rounds else killed.problem or NOT_YET)
        for shown, name in scenes
    ]
    caught = found.get((RESTART, CATCH_UP)) or Row(RESTART, CATCH_UP, "")
    text = table(("killed", "seconds without a joined line"), lines)
    if not caught.rounds:
        return text + f"\nCatching up with registered events: {caught.problem or NOT_YET}.\n"
    joining, catching_up = figure(caught.median("joining")), figure(caught.median("catch_up"))
    ratio, whole = (figure(caught.median(name), ".1f") for name in ("ratio", "ratio_with_start_up"))
    return text + (
        f"\nA second datacentre over a backlog that the first has joined: {catching_up} events/s, joining {joining}: "
        f"{ratio} × (goal: 5 ×; with start-up {whole} ×).\n"
    )


def _plots(rows: Sequence[Row]) -> dict[str, str]:
    """Returns SVG by name, for each plot with at least two points."""
    out = {}

    def points(group: str, x: str, figure_: str) -> list[tuple[float, float]]:
        found = [(float(r.settings[x]), r.median(figure_)) for r in rows if r.group == group and r.rounds]
        return sorted((at, value) for at, value in found if value is not None and value > 0)

    def add(name: str, title: str, x: Axis, y: Axis, series: Sequence[tuple[str, str, str, str]]) -> None:
        drawn = [Series(s, points(group, key, value)) for s, group, key, value in series]
        if all(len(each.points) > 1 for each in drawn):
            out[name] = chart(title, x, y, drawn)

    add(CURVE_PLOT, "Latency over load", Axis("clicks/s"), Axis("ms", log=True),
        [(f"p{share}", CURVE_GROUP, "rate", f"p{share}_ms") for share in (99, 90, 50)])  # fmt: skip
    labels = {"size": "times the clicks", "files": "files a side", "joiners": "joiners", "shards": "shards"}
    for axis, label in labels.items():
        x = Axis(label, log=axis == "files")
        group = growth_group(axis)
        add(f"growth-{axis}-time", f"Time over {label}", x, Axis("seconds"),
            [("wall", group, "x", "wall_s"), ("CPU", group, "x", "cpu_s")])  # fmt: skip
        add(
            f"growth-{axis}-memory",
            f"Peak memory over {label}",
            x,
            Axis("MiB"),
            [("all processes", group, "x", "peak_mib")],
        )
    return out


def kept() -> list[Row]:
    """Reads the rows of ``bench/results.json``."""
    return [read_row(each) for each in json.loads(KEPT.read_text())] if KEPT.exists() else []


def publish(rows: Sequence[Row]) -> None:
    """Writes ``bench/results.json``, the page and its plots. Other rows stay as they were."""
    merged = {(row.group, row.name): row for row in [*kept(), *rows]}
    every = [merged[key] for key in sorted(merged)]
    KEPT.write_text(json.dumps([asdict(row) for row in every], indent=1) + "\n")
    texts = render(every)
    for old in PLOTS.glob("*.svg"):
        old.unlink()
    for name, text in texts.items():
        (ROOT / "docs" / name).write_text(text)


def stale(read: Callable[[Path], str] = lambda path: path.read_text() if path.exists() else "") -> list[str]:
    """Returns the files below ``docs/`` that differ from those that the kept results give."""
    return [name for name, text in render(kept()).items() if read(ROOT / "docs" / name) != text]


def main() -> int:
    """Runs the command that the module describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, help="import rows from an earlier --results")
    parser.add_argument("--check", action="store_true", help="only list stale files")
    given = parser.parse_args()
    if given.check:
        for name in (out := stale()):
            print(f"docs/{name} is stale: python -m bench.report")
        return int(bool(out))
    publish(Results(given.source).rows() if given.source else [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
