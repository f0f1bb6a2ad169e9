"""``docs/benchmarks/service-level.md`` and its charts, from the rows. Pure except for ``publish``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.report import table
from bench.service_level.rows import DAY, OVERLOAD, QUIET_CORES, WITHIN_10, Row, read
from bench.svg import Axis, Band, Series, chart
from photon.lab.chaos.api import Do

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"
SLOWEST_MAX = 10
PAGE, PICTURES = "service-level.md", "service-level"
SMOOTH = 5  # moments over which a share is taken
NONE = "Not measured yet.\n"
HEAD = """\
# Service level

<!-- Written by `python -m bench.service_level draw` from `bench/service_level.jsonl`: change those. -->

Days with faults, and too much load, with the figures of the paper's evaluation (section 4) from our own measurements.
`make service-level HOURS=2` and `make overload MINUTES=10` measure; each day adds a row once it is verified, so runs
add up.
"""
SETTING = """\
Two datacentres, each one process, and a third region, round trip 100 ms; five replicas of the registry and the proxy
between regions: 8 processes on one machine, which also writes the logs and reads the outputs. Both datacentres read
all events.
"""
DAYS = """\
## Events joined in time

A *day* is compressed: its load goes as 1 - 0.7 cos, with the peak in the middle. In each one datacentre is lost and
comes back, the registry is resharded, and datacentres, replicas and leaders are killed, restarted or stand still,
links are cut, lossy or slow, one fault after the other.

- *In time*: from the moment that an event and its primary event are written, in whichever datacentre is first, until
  its line can be read in an output; of all events that have a primary event.
- *Wrong*: events lost, doubled, invented, or joined wrongly, ledgers that disagree with the truth, alarms of the
  verifiers; on all that was ever written into the deployment.
- *Others*: processor cores that something else used meanwhile, except the writer and reader; quiet: below {quiet:g}.
"""
PROMISE = """\
### The promise

99.99 % within 10 s, the rest within 60 s, except events *of a lost datacentre*: before it was killed or stopped it
had made their line (`joined_at`) and registered their ids, so only it could write them, within 10 s of its return.
Counted are those later than 10 s; in brackets the slowest. Memory and files: of the process that has most, over the
first tenth of the day / at most / over the last; a log stays open for ten minutes.
"""
SLOWEST = """\
### The slowest ten

Without those of a lost datacentre. *Joined*: its joiner made the line; *readable*: its id was registered, and its
line written. Rows also keep what `photon explain` says.
"""
OVER = """\
## Twice what is borne

Both datacentres are offered more than can be joined on this machine, and what they joined meanwhile is called borne;
then a new deployment is offered twice as much. Nobody refuses lines in a log: a dispatcher reads no further while as
much as `limits.read_ahead` is under way, joiners and replicas refuse batches beyond their limits and get them again,
and what is not read waits on disk. Each process dies beyond the memory limit of its container, here of its data
(`RLIMIT_DATA`). *Caught up*: from the last line until all is joined.
"""


def render(rows: Sequence[Row]) -> dict[str, str]:
    """Returns the text of each file, by its path below ``docs/benchmarks``."""
    days, over = ([row for row in rows if row["kind"] == kind] for kind in (DAY, OVERLOAD))
    pictures: dict[str, str] = {}
    parts = [HEAD, _measured_on(rows), SETTING, DAYS.format(quiet=QUIET_CORES)]
    if days:
        parts += [*_days(days), SLOWEST, _slowest(days)]
        shown = max(days, key=lambda row: (not row["problems"], quiet(row), row["minutes"], row["began"]))
        parts += ["## The paper's figures\n", _shown(shown), *_figures(shown, pictures)]
    else:
        parts.append(NONE)
    parts += [OVER, _over(over) if over else NONE]
    if over:
        parts += _over_figures(max(over, key=lambda row: (row["minutes"], row["began"])), pictures)
    return {PAGE: "\n".join(parts), **{f"{PICTURES}/{name}.svg": text for name, text in pictures.items()}}


def quiet(row: Row) -> bool:
    """True if the machine had little other work."""
    return bool(row["other_cores"] < QUIET_CORES)


def _measured_on(rows: Sequence[Row]) -> str:
    form = "{cores} cores ({cpu}), {memory}, Linux {kernel}, Python {python}"
    return "".join(f"{each}.\n" for each in sorted({form.format(**row["machine"]) for row in rows}))


def _three(values: Sequence[float]) -> str:
    return " / ".join(f"{value:,.0f}" for value in values)


def _within(rows: Sequence[Row]) -> str:
    """Returns shares over all rows, rounded down: less than 100 % is never shown as 100 %."""
    events = sum(row["events"] for row in rows)
    shares = [sum(row["within"][limit] for row in rows) / max(1, events) for limit in ("1", "10", "60")]
    return " / ".join(f"{int(share * 1e6) / 1e4:g}" for share in shares) + " %"


def _days(days: Sequence[Row]) -> list[str]:
    """Makes a line for the days of each date and load, and a line for all days."""
    alike: dict[tuple[str, float, float, bool], list[Row]] = {}
    for row in days:
        alike.setdefault((row["began"][:10], row["minutes"], row["rate"], quiet(row)), []).append(row)
    groups = [
        (f"{date}, {len(some)} × {minutes:g} min, {'quiet' if is_quiet else 'loaded'}", f"{rate:,}", some)
        for (date, minutes, rate, is_quiet), some in alike.items()
    ]
    groups.append((f"**all, {sum(row['minutes'] for row in days) / 60:.3g} h**", "", list(days)))
    head = ("days", "events/s", "faults", "cores: own / others", "events", "within 1 / 10 / 60 s",
            "p50 / p99 / most of the worst day, ms", "written during a fault", "wrong")  # fmt: skip
    promise = ("days", "of a lost datacentre", "others later than 10 / 60 s", "others within 10 s", "promise",
               "memory, MiB", "open files", "growing")  # fmt: skip
    return [table(head, [_line(*group) for group in groups]), PROMISE,
            table(promise, [_kept(name, some) for name, _, some in groups])]  # fmt: skip


def _line(name: str, rate: str, some: Sequence[Row]) -> tuple[str, ...]:
    def worst(what: str) -> str:
        return _three([max(row[what][at] for row in some) for at in range(3)])

    cores = (sum(row[what] for row in some) / len(some) for what in ("own_cores", "other_cores"))
    wrong = [f"seed {row['seed']}: {each}" for row in some for each in row["problems"]]
    return (
        name, rate, f"{sum(len(row['faults']) - len(row['undone']) for row in some)}",
        " / ".join(f"{each:.2f}" for each in cores), f"{sum(row['events'] for row in some):,}", _within(some),
        worst("p50_p99_max_ms"), worst("during_p50_p99_max_ms"), "; ".join(wrong) or "none",
    )  # fmt: skip


def kept(row: Row) -> bool:
    """True if a day kept the promise."""
    late = row["late"]
    promised = row["events"] - late["owned"]
    in_time = promised - late["others"]
    return not row["outstanding"] and in_time >= WITHIN_10 * promised and not late["others_60"]


def _kept(name: str, some: Sequence[Row]) -> tuple[str, ...]:
    def total(what: str) -> int:
        return sum(row["late"][what] for row in some)

    def most(what: str) -> str:
        return f"{max(row['late'][what] for row in some):g} s"

    def three(what: str) -> str:
        return " / ".join(f"{max(row[what][at] for row in some)}" for at in range(3))

    events = sum(row["events"] for row in some) - total("owned")
    in_time = events - total("others") - sum(row["outstanding"] for row in some)
    missed = sum(not kept(row) for row in some)
    return (
        name, f"{total('owned'):,} ({most('owned_max_s')})",
        f"{total('others'):,} / {total('others_60'):,} ({most('others_max_s')})",
        f"{int(in_time / max(1, events) * 1e6) / 1e4:g} %",
        "kept" if not missed else f"**missed on {missed} of {len(some)} days**", three("memory_mib"), three("files"),
        ", ".join(sorted({each.split()[0] for row in some for each in row["growing"]})) or "none",
    )  # fmt: skip


def _slowest(days: Sequence[Row]) -> str:
    found = sorted(
        ((each, row["began"]) for row in days for each in row["slowest"]), key=lambda each: -each[0]["took_s"]
    )
    alike: dict[tuple[str, str], list[Row]] = {}
    for each, began in found[:SLOWEST_MAX]:
        faults = "; ".join(fault.partition(" (")[0] for fault in each["faults"])
        alike.setdefault((began, faults or "none"), []).append(each)

    def range_of(some: Sequence[Row], value: Callable[[Row], float]) -> str:
        values = [value(each) for each in some]
        return "–".join(f"{each:.1f}" for each in dict.fromkeys((min(values), max(values))))

    lines = [
        (
            began, faults, f"{len(some)}", range_of(some, lambda each: each["until_joined_s"]),
            range_of(some, lambda each: each["took_s"] - each["until_joined_s"]),
        )
        for (began, faults), some in alike.items()
    ]  # fmt: skip
    return table(("day", "fault", "events", "joined after, s", "readable then after, s"), lines)


def _shown(row: Row) -> str:
    machine = "quiet" if quiet(row) else "loaded"
    return (
        f"The day of {row['began']}: {row['minutes']:g} minutes, {row['rate']:,} events/s on average, on a {machine} "
        f"machine ({row['other_cores']:g} cores busy with something else).\n"
    )


Points = Sequence[tuple[float, float]]


def _figures(row: Row, pictures: dict[str, str]) -> list[str]:
    columns = row["columns"]
    at = [each / 60 for each in columns["at"]]
    took = [max(1e-9, now - before) for before, now in zip([0.0, *at], at, strict=False)]
    names = [name.removeprefix("joined ") for name in columns if name.startswith("joined ")]
    all_joined, all_wasted = _sum(columns, "joined "), _sum(columns, "wasted ")
    away = [_band(each, each[3].partition(" for ")[0]) for each in row["faults"] if each[2] == Do.AWAY]
    reshard = [_band(each, "resharded") for each in row["faults"] if each[2] == Do.RESHARD]
    others = [_band(each) for each in row["faults"] if each[2] not in (Do.AWAY, Do.RESHARD)]
    minutes = Axis("minutes of the day")

    def each(name: str) -> Points:
        return [(x, float(value)) for x, value in zip(at, columns[name], strict=True) if value is not None]

    def a_minute(values: Sequence[float]) -> Points:
        return [(x, value / length) for x, value, length in zip(at, values, took, strict=True)]

    def a_second(name: str) -> Points:
        return [(x, value / 60) for x, value in a_minute(columns[name])]

    def share(part: Sequence[float], whole: Sequence[float]) -> Points:
        return [(x, 100 * a / b) for x, a, b in zip(at, _smooth(part), _smooth(whole), strict=True) if b]

    latency = [Series(p, [(x, max(1.0, ms)) for x, ms in each(p)]) for p in ("p99", "p90", "p50")]
    hits, misses = (columns[name] for name in ("hits", "misses"))
    shards = sorted((name for name in columns if name.startswith("ids ")), key=lambda name: int(name[4:]))
    lost = row["away"][0]
    found: list[tuple[str, str, str, Axis, Axis, list[Series], list[Band]]] = [
        ("latency", "7: latency over a day", "By when events were written; shaded are all faults.",
         minutes, Axis("ms", log=True), latency, [*others, *away]),
        ("cache", "8: look-ups that the cache answers",
         f"{_percent(sum(hits), sum(hits) + sum(misses))} of {sum(hits) + sum(misses):,} keys; others are read from "
         "logs, or were asked for before they came.",
         minutes, Axis("keys a second"),
         [Series("in the cache", a_second("hits")), Series("not", a_second("misses"))],
         away),
        ("joined", "9: joined by datacentre", "One is lost, the other takes over, and it comes back.",
         minutes, Axis("events a minute"),
         [Series(name, a_minute(columns[f"joined {name}"])) for name in names]
         + [Series("offered", a_minute(columns["offered"]))], away),
        ("batching", "10: ids and Raft entries", "All shards: what joiners register, and the entries that carry it.",
         minutes, Axis("a second", log=True),
         [Series(name, [(x, max(0.1, y)) for x, y in a_second(key)])
          for name, key in (("ids", "entry_ids"), ("entries", "entries"))], away),
        ("shards", "11: ids of each shard",
         "No id is old enough to be dropped, so what a shard has stays; from the change on all share what comes.",
         minutes, Axis("ids"), [Series(f"shard {name[4:]}", [(x, y) for x, y in each(name) if y]) for name in shards],
         reshard),
        ("wasted", "12: wasted joins",
         f"{_percent(sum(all_wasted), sum(all_joined) + sum(all_wasted))} of all joins of the day were thrown away "
         "because the other datacentre had registered first (the paper: less than 5 %).",
         minutes, Axis("% of joins"),
         [Series("thrown away", share(all_wasted, [a + b for a, b in zip(all_wasted, all_joined, strict=True)]))],
         [*others, *away]),
        ("return", "13: a datacentre catches up", f"Lines that {lost['datacentre']} has not read and the other has.",
         Axis("seconds after its return"), Axis("lines"),
         [Series("behind", list(zip(lost["at"], lost["behind"], strict=True)))], []),
    ]  # fmt: skip
    return [
        _picture(pictures, name, f"Figure {title}", text, x, y, [s for s in series if s.points], bands)
        for name, title, text, x, y, series, bands in found
    ]


def _picture(
    into: dict[str, str], name: str, title: str, text: str, x: Axis, y: Axis, series: Sequence[Series],
    bands: Sequence[Band],
) -> str:  # fmt: skip
    low = min((at for each in series for at, _ in each.points), default=0.0)
    if low < 0:  # an axis begins at 0
        series = [Series(each.name, [(at - low, value) for at, value in each.points]) for each in series]
        bands = [Band(-low, -low, "returns")]
        x = Axis("seconds")
    into[name] = chart(title, x, y, series, bands)
    return f"### {title}\n\n{text}\n\n![{name}]({PICTURES}/{name}.svg)\n"


def _band(fault: Sequence[float | str], name: str = "") -> Band:
    at, lasts = float(fault[0]), float(fault[1])
    return Band(at / 60, (at + lasts) / 60, name)


def _sum(columns: Mapping[str, Sequence[float]], begin: str) -> list[float]:
    return [sum(each) for each in zip(*(columns[n] for n in columns if n.startswith(begin)), strict=True)]


def _smooth(values: Sequence[float]) -> list[float]:
    return [sum(values[max(0, place - SMOOTH) : place + 1]) for place in range(len(values))]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _over(rows: Sequence[Row]) -> str:
    lines = [
        (
            row["began"], f"{row['borne']:,}", f"{row['rate']:,} for {row['minutes']:g} min",
            f"{row['wanted']:,}", f"{row['joined_meanwhile']:,}", f"{row['caught_up_s']:,.0f} s",
            f"{row['load'][0]:g} – {row['load'][1]:g}", "; ".join(row["problems"]) or "none",
        )
        for row in rows
    ]  # fmt: skip
    head = ("run", "borne, clicks/s", "offered", "to be joined", "of it meanwhile", "caught up after", "load average",
            "lost, doubled, wrong, killed")  # fmt: skip
    return table(head, lines)


def _over_figures(row: Row, pictures: dict[str, str]) -> list[str]:
    columns = row["columns"]
    at = [each / 60 for each in columns["at"]]
    fed = [Band(0.0, row["fed_s"] / 60, "all is written")]
    minutes = Axis("minutes")

    def each(name: str, of: Callable[[float], float]) -> Points:
        return [(x, of(value)) for x, value in zip(at, columns[name], strict=False)]

    most: dict[str, tuple[int, int, int]] = {}
    for name, found in row["processes"].items():
        kind = name.split()[0]
        before = most.get(kind, (0, 0, 0))
        most[kind] = (found["limit_mib"], max(before[1], found["resident_mib"]), before[2] + found["restarts"])
    memory = [Series(kind, each(f"mib {kind}", float)) for kind in most if f"mib {kind}" in columns]
    clicks = [Series(name, each(name, lambda value: value / 1000)) for name in ("written", "joined")]
    return [
        f"The run of {row['began']}.\n",
        _picture(pictures, "overload", "Written and joined", "What is not joined yet waits in the logs.", minutes,
                 Axis("thousand clicks"), clicks, fed),
        _picture(pictures, "overload-lag", "Not read yet", "In the datacentre that has most.", minutes, Axis("MiB"),
                 [Series("click logs", each("lag", lambda value: value / 2**20))], fed),
        _picture(pictures, "overload-memory", "Memory", "Resident, of the largest process of each kind.", minutes,
                 Axis("MiB"), memory, fed),
        table(("kind", "limit, MiB", "most that one took, MiB", "ended"),
              [(kind, f"{limit}", f"{took}", f"{ended}") for kind, (limit, took, ended) in most.items()]),
    ]  # fmt: skip


def publish(rows: Sequence[Row], into: Path = DOCS) -> None:
    """Writes the page and its charts; obsolete charts are deleted."""
    texts = render(rows)
    (into / PICTURES).mkdir(parents=True, exist_ok=True)
    for old in (into / PICTURES).glob("*.svg"):
        old.unlink()
    for name, text in texts.items():
        (into / name).write_text(text)


def stale() -> list[str]:
    """Returns the files that differ from those that the kept rows give."""
    return [name for name, text in render(read()).items()
            if not (DOCS / name).exists() or (DOCS / name).read_text() != text]  # fmt: skip
