"""Zeitgeist, the example of the MillWheel paper: finds queries that are clicked more, or less, than expected.

Clicks are counted per second and query over the joined output of all datacentres, and compared with a model of the
expected number. A spike shows in the records that are present; a dip shows in *missing* records, so it needs the
watermark: a second's zero means something only when no record of that second can still come.

Run it where the deployment runs, and look at the result::

    PHOTON_CONFIG=photon.toml photon compute run zeitgeist.py
    python zeitgeist.py out/windows out/anomalies zeitgeist.html
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from photon.computing import Computation, Context, Record, Timer, Topology

SECOND = 1_000_000_000
QUIET = 30  # after this many seconds without a click, a query is not counted until it is clicked again
LEARNT = 10  # seconds after which the model of a query is trusted
FORGETS = 0.1  # weight of a second in the model against all seconds before it
SIGMAS = 4.0


class Counter(Computation):
    """Counts the clicks of each second, keyed by query, including seconds without clicks."""

    def process_record(self, ctx: Context, record: Record) -> None:
        end = (record.time_ns // SECOND + 1) * SECOND
        if ctx.is_late(
            end
        ):  # its second was counted already: its event was later than promised, or than the percentile
            ctx.produce("corrections", {"query": ctx.key, "second": end // SECOND - 1}, time_ns=record.time_ns)
            return
        counts = ctx.state.setdefault("counts", {})
        counts[str(end)] = counts.get(str(end), 0) + 1
        ctx.set_timer("second", end)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        count = ctx.state["counts"].pop(str(timer.time_ns), 0)
        ctx.state["quiet"] = quiet = 0 if count else ctx.state.get("quiet", 0) + 1
        window = {"query": ctx.key, "second": timer.time_ns // SECOND - 1, "count": count, "waiting": timer.waiting}
        ctx.produce("windows", window, time_ns=timer.time_ns)
        if quiet < QUIET:
            ctx.set_timer("second", timer.time_ns + SECOND)


class Detector(Computation):
    """Finds seconds with unexpected counts, keyed by query."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state.setdefault("counts", {})[str(record.time_ns)] = record.value["count"]
        ctx.set_timer("in order", record.time_ns)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        count = ctx.state["counts"].pop(str(timer.time_ns))
        model, kind = judge(ctx.state.get("model"), count)
        if kind:
            second = timer.time_ns // SECOND - 1
            found = {"query": ctx.key, "second": second, "kind": kind, "count": count, "expected": model["mean"]}
            ctx.produce("anomalies", found, time_ns=timer.time_ns)
        ctx.state["model"] = model


def judge(model: Mapping[str, float] | None, count: int) -> tuple[dict[str, float], str]:
    """Returns the model after one more second, and the class of that second: "spike", "dip" or ""."""
    if model is None:
        return {"mean": float(count), "seconds": 1}, ""
    mean, seconds = model["mean"], model["seconds"] + 1
    spread = SIGMAS * math.sqrt(max(mean, 1.0))
    kind = ""
    if seconds > LEARNT:
        kind = "spike" if count > mean + spread else "dip" if count < mean - spread else ""
    believed = min(max(count, mean - spread), mean + spread)  # an anomaly does not become the new normal at once
    return {"mean": round(mean + FORGETS * (believed - mean), 6), "seconds": seconds}, kind


def made(config: str | None = None, out: str = "out", watermark: str = "exact") -> Topology:
    """Makes the topology. ``config``: the deployment file; ``out``: the directory for published streams."""
    found = Topology("zeitgeist")
    joined = found.joined(config or os.environ.get("PHOTON_CONFIG", "photon.toml"))
    found.add(
        Counter(),
        inputs={joined: lambda record: record.value["primary"]["terms"]},
        outputs=["windows", "corrections"],
        watermark=watermark,
    )
    found.add(
        Detector(),
        inputs={"windows": lambda record: record.value["query"]},
        outputs=["anomalies"],
        watermark=watermark,
    )
    for stream in ("windows", "anomalies", "corrections"):
        found.publish(stream, f"{out}/{stream}")
    return found


# -- a chart ---------------------------------------------------------------------------------------------------------
WIDTH, HEIGHT = 900, 90


def page(windows: Iterable[Mapping[str, Any]], anomalies: Iterable[Mapping[str, Any]]) -> str:
    """Makes an HTML page of each query's clicks per second, with spikes and dips marked."""
    counts: dict[str, dict[int, int]] = {}
    for each in windows:
        counts.setdefault(each["query"], {})[each["second"]] = each["count"]
    marks: dict[str, list[Mapping[str, Any]]] = {}
    for each in anomalies:
        marks.setdefault(each["query"], []).append(each)
    shown = sorted(counts, key=lambda query: -sum(counts[query].values()))[:20]
    charts = "".join(_chart(query, counts[query], marks.get(query, [])) for query in shown)
    style = "body{font:14px system-ui;margin:2em}svg{display:block}.spike{fill:#c22}.dip{fill:#26c}"
    return (
        f"<!doctype html><meta charset=utf-8><title>Zeitgeist</title><style>{style}</style>"
        f"<h1>Clicks a second by query</h1><p>Red: a spike; blue: a dip.</p>{charts}\n"
    )


def _chart(query: str, counts: Mapping[int, int], marks: Iterable[Mapping[str, Any]]) -> str:
    first, last, top = min(counts), max(counts), max(1, *counts.values())

    def at(second: int, count: float) -> tuple[float, float]:
        return (second - first) / max(1, last - first) * WIDTH, HEIGHT - count / top * HEIGHT

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*each) for each in sorted(counts.items())))
    dots = ""
    for mark in marks:
        x, y = at(mark["second"], mark["count"])
        told = f"{mark['kind']}: {mark['count']}, expected {mark['expected']:.1f}"
        dots += f"<circle class={mark['kind']} cx={x:.1f} cy={y:.1f} r=5><title>{told}</title></circle>"
    return (
        f"<h2>{escape(query)} (most: {top})</h2><svg viewBox='-6 -6 {WIDTH + 12} {HEIGHT + 12}' width={WIDTH}>"
        f'<polyline points="{line}" fill=none stroke=#888 />{dots}</svg>'
    )


def main(windows: str, anomalies: str, into: str) -> None:
    """Writes the page from the published streams."""
    import photon

    Path(into).write_text(page(*([each.foreign for each in photon.read(path)] for path in (windows, anomalies))))


topology = made()
if __name__ == "__main__":
    main(*sys.argv[1:])
