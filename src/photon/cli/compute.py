"""``photon compute``: computations over published records."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, Printed, dry_run, formatted, taken
from photon.cli.tables import picked, print_table, say
from photon.config.clock import utc
from photon.config.errors import PhotonError, UsageError

if TYPE_CHECKING:
    from photon.assembly.computing import Site
    from photon.computing.intervals import Move
    from photon.computing.journal import Status

PROGRESS_S = 5.0
RESTART_S = 1.0
_HERE, _SPARK = "processes metrics only", "master spark_settings partitions records"
"""Options of ``run`` that go with ``--on here`` only, and with ``--on spark`` only."""
SILENT_S = 30.0
"""An owner silent for this time is gone."""

_state = click.option(
    "--state", type=PATH, metavar="DIR",
    help="Directory of the state; default: .photon-compute/NAME next to FILE, NAME of the topology.",
)  # fmt: skip


@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--hbase", "thrift", multiple=True, required=True, metavar="HOST:PORT",
              help="A Thrift 2 server of HBase; may be repeated.")  # fmt: skip
@click.option("--table", default="photon_computing", show_default=True, metavar="NAME",
              help="HBase's table, of all topologies; NAMESPACE:NAME for one in a namespace.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Number of intervals for the keys of a new topology.")  # fmt: skip
@click.option("--intervals", metavar="NAME,NAME",
              help="Intervals this machine takes over, even from another one; default: all unassigned.")  # fmt: skip
@click.option(
    "--durable/--not-durable",
    default=None,
    help="Your word that this HBase keeps what it acknowledged, as on HDFS; or go on although it does not.",
)
@formatted
def init(
    file: Path, state: Path | None, thrift: tuple[str, ...], table: str, processes: int, intervals: str | None,
    durable: bool | None, out: Printed,
) -> int:  # fmt: skip
    """Keep the state of a FILE's topology in HBase, and say which intervals of keys this machine has.

    For several machines: each does this once, with a --state of its own, and then runs it. An interval that another
    machine had is taken over: what still runs there writes nothing more. Run again, it names other servers or
    intervals. HBase keeps what it acknowledged through a crash only on HDFS, and does not say on what it stands: so
    you do.

    \b
    Examples:
      photon compute init spend.py --hbase hbase1:9090 --hbase hbase2:9090 --durable --processes 4 --intervals i0,i1
      photon compute init spend.py --hbase hbase1:9090 --durable --intervals i2,i3
      photon compute init spend.py --hbase 127.0.0.1:9091 --not-durable
    Exit codes: 0 done, 1 failed, 2 wrong usage, or nobody says whether HBase is durable.
    """
    from photon.assembly.computing import Site, default_state, keep_in_hbase, load_topology

    if durable is None:
        raise UsageError(
            f"HBase at {thrift[0]} keeps what it acknowledged only on HDFS: say --durable if it stands there; with "
            "--not-durable a crash of HBase may set computations back, behind what they published"
        )
    topology = load_topology(file)
    site = Site(topology, file.resolve().parent, state or default_state(file, topology))
    named = [each.strip() for each in (intervals or "").split(",") if each.strip()]
    here, made = keep_in_hbase(site, thrift, table, processes, named, durable=durable)
    document = {"topology": topology.name, "table": table, "made": made, "durable": durable, "intervals": here}
    word = "" if durable else "; NOT durable: a crash of HBase may set it back"
    out.show(document, f"HBase, table {table}: {topology.name} has {', '.join(here)} here{word}")
    return DONE


@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--once", is_flag=True, help="Read what is published now, call all timers, and end. A later run "
                                           "computes newer records.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Number of intervals for the keys of a new state, each with a process; an existing state keeps "
              "its own (see photon compute rescale).")  # fmt: skip
@click.option("--metrics", metavar="HOST:PORT", help="Answer /metrics there, for Prometheus, and /healthz.")
@click.option("--on", type=click.Choice(["here", "spark"]), default="here", show_default=True,
              help="spark: the same by Structured Streaming, on a cluster; its state is another one.")  # fmt: skip
@click.option("--master", metavar="URL", help="On Spark: its master; default: as spark-submit says, else local[*].")
@click.option("--spark", "spark_settings", multiple=True, metavar="KEY=VALUE", help="A Spark setting.")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=8, show_default=True,
              help="On Spark: number of parts for the keys of a new state; it cannot be changed.")  # fmt: skip
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True,
              help="On Spark: records that a batch reads at most, about.")  # fmt: skip
@click.option("--only", multiple=True, hidden=True, metavar="INTERVAL")
@formatted
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--stop-with-parent", is_flag=True, help="End when standard input ends.")
def run(
    file: Path, state: Path | None, once: bool, processes: int, metrics: str | None, on: str, master: str | None,
    spark_settings: tuple[str, ...], partitions: int, records: int, only: tuple[str, ...], quiet: bool,
    stop_with_parent: bool, out: Printed,
) -> int:  # fmt: skip
    """Run the computations of a Python FILE, its `topology`, until SIGTERM.

    Reads published records, and counts each once in its state and output, after any crash. The next run continues
    where it ended. Paths in FILE are relative to it.

    \b
    Examples:
      photon compute run spend.py
      photon compute run spend.py --once
      photon compute run zeitgeist.py --processes 4 --state /var/lib/zeitgeist
      photon compute run spend.py --on spark --master spark://host:7077 --state /mnt/shared/spend
    Exit codes: 0 done, or ended by SIGTERM; 3 the same, and records were put aside because a computation failed on
    them, as said; 1 failed, 2 wrong usage.
    """
    from photon.assembly.computing import Site, default_state, load_topology
    from photon.assembly.rescaling import carry_out
    from photon.computing.journal import put_status
    from photon.config.stopping import stop_flag
    from photon.status.http import serve_metrics

    stop = stop_flag(with_parent=stop_with_parent)
    taken(
        f"--on {on}",
        _SPARK if on == "spark" else _HERE,
        "file state once on output_format quiet stop_with_parent",
        {},
    )
    if on == "spark":
        from photon.cli.spark.backfill import pairs
        from photon.operations.compute_on_spark import run as run_on_spark

        said = run_on_spark(
            file, state, once=once, master=master, settings=pairs(spark_settings), partitions=partitions,
            records=records, stop=stop, tell=say,
        )  # fmt: skip
        out.show({"topology": said.topology, "owners": [_document(said)]}, lambda: _print([said]))
        return ATTENTION if said.counts.get("aside") else DONE
    topology = load_topology(file)
    where = state or default_state(file, topology)
    site = Site(topology, file.resolve().parent, where, load=lambda: load_topology(file))
    progress = _Progress(quiet=quiet or out.json or bool(only))
    if metrics is not None:
        serve_metrics(metrics, lambda into: put_status(into, progress.found))
    site.intervals(processes)
    if only:
        site.adopt()
        _here(site, only, stop, progress, once=once)
        return DONE
    found: list[Status] = []

    def run_(to_the_end: bool) -> bool:
        carry_out(site, _say)
        finished = False
        if len(site.here()) == 1:
            found[:], finished = _here(site, only, stop, progress, once=to_the_end)
        if not finished:
            options = ["--state", str(where), *(["--once"] if to_the_end else [])]
            found[:] = _apart(site, [str(file), *options], stop, progress, once=to_the_end)
        return not stop.is_set()

    with site.alone(), closing(site):
        site.adopt()
        site.runs(once, run_)
    out.show({"topology": topology.name, "owners": [_document(each) for each in found]}, lambda: _print(found))
    return ATTENTION if any(each.counts.get("aside") for each in found) else DONE


def _here(
    site: Site, only: Sequence[str], stop: threading.Event, progress: _Progress, *, once: bool
) -> tuple[list[Status], bool]:
    """The final state, and True if the run is done: it is not if the interval is to be split."""
    from photon.assembly.computing import LEFT_S, Running

    found: list[Status] = []

    def look(now: list[Status]) -> None:
        found[:] = now
        progress.show(now)

    running = Running(site, only, once=once, wait_s=LEFT_S, tell=say)
    try:
        finished = running.run(stop, look)
    finally:
        running.close()
    return found, finished


def _apart(
    site: Site, arguments: Sequence[str], stop: threading.Event, progress: _Progress, *, once: bool
) -> list[Status]:
    """Runs a process for each interval here. Restarts a killed one; if one fails, all end. Intervals that are to be
    split or merged end earlier."""
    from photon.assembly.computing import say_watermarks
    from photon.assembly.rescaling import carry_out
    from photon.computing.journal import PublishedWatermark, read_status

    known, here = site.table.look(), site.here()
    command = [sys.executable, "-m", "photon", "compute", "run", *arguments, "--stop-with-parent", "--quiet"]
    began_ns = site.clock.now_ns()
    journals: dict[str, PublishedWatermark] = {}
    children: dict[str, subprocess.Popen[bytes]] = {}

    def found() -> list[Status]:
        said = read_status(site.disk, site.state)
        return [each for each in said if each.at_ns >= began_ns and each.interval in here]

    failed, failed_code = "", 0
    try:
        while not stop.is_set():
            known = site.table.look()
            if known.version != site.topology.version:
                with suppress(UsageError):  # its children report it
                    site.follow(known.version, known.shape)
            if known.move is not None:
                ending = [children.pop(each) for each in known.move.old if each in children]
                _end(ending)
                carry_out(site, _say)
                here = site.here()
                continue
            for name in here:
                if name not in children:
                    children[name] = subprocess.Popen([*command, "--only", name], stdin=subprocess.PIPE)
                elif (code := children[name].poll()) is not None:
                    if code >= 0:
                        failed_code = code
                        failed = f"the process of the interval {name} has ended with {code}; see what it said"
                        break
                    _say(f"the process of the interval {name} was killed by signal {-code}; it is started again")
                    del children[name]
            if failed:
                break
            now = found()
            say_watermarks(site, known.intervals, now, journals)
            progress.show(now)
            if once and len(now) == len(here) and all(each.ended for each in now):
                break
            stop.wait(RESTART_S)
    finally:
        _end(children.values())
    if failed:
        error = PhotonError(failed)
        error.exit_code = failed_code or error.exit_code
        raise error
    now = found()
    say_watermarks(site, known.intervals, now, journals)
    for journal in journals.values():
        journal.close()
    return now


def _end(children: Collection[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _say(line: str) -> None:
    say(" ".join(line.split()))


class _Progress:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = 0.0
        self.found: Sequence[Status] = ()

    def show(self, found: Sequence[Status]) -> None:
        self.found = found
        if self._quiet or not found or time.monotonic() - self._shown < PROGRESS_S:
            return
        self._shown = time.monotonic()
        records, rate = (
            sum(each.counts.get("records", 0) for each in found),
            sum(each.records_per_s for each in found),
        )
        held = "; ".join(dict.fromkeys(_held(each) for each in found if _held(each)))
        low_ns = min((mark.percentile_ns for each in found for mark in each.watermarks.values()), default=None)
        said = f"{records:,} records, {rate:,.0f}/s, watermark {_time(low_ns)}"
        _say(f"{found[0].topology}: {said}{', held back by ' + held if held else ''}")


def _held(each: Status) -> str:
    return each.held or "; ".join(who for names in each.held_by.values() for who in names)


def _time(time_ns: int | None) -> str:
    from photon.computing.wire import ENDED_NS, NEVER_NS

    if time_ns is None or time_ns == NEVER_NS:
        return "-"
    return "end" if time_ns == ENDED_NS else utc(time_ns)


# -- photon status compute -------------------------------------------------------------------------------------------
def status(at: Deployed, name: str | None = None) -> int:
    """``name``: the file, or its state directory. Exit code 3: records were put aside, or a process is silent. Raises
    UsageError."""
    from photon.assembly.computing import default_state, load_topology, statuses

    if name is None:
        raise UsageError("name the FILE of the computations, or the directory of their state")
    path = Path(name)
    found = statuses(path if path.is_dir() else default_state(path, load_topology(path)))
    at.show({"owners": [_document(each) for each in found]}, lambda: _print(found))
    silent = any(time.time_ns() - each.at_ns > SILENT_S * 1e9 for each in found)
    return ATTENTION if silent or any(each.counts.get("aside") for each in found) else DONE


def _document(each: Status) -> dict[str, Any]:
    return {
        **picked(each, "topology interval pid"),
        "at": _time(each.at_ns),
        **each.counts,
        "records_per_s": each.records_per_s,
        "published": each.published_records,
        "computations": {
            name: {"watermark": _time(mark.percentile_ns), "waiting": mark.waiting}
            for name, mark in each.watermarks.items()
        },
        **picked(each, "held_by held faults"),
    }


def _print(found: Sequence[Status]) -> None:
    rows = [
        [
            each.interval,
            name,
            _time(each.watermarks[name].percentile_ns),
            *(f"{each.counts.get(what, 0):,}" for what in ("records", "late", "timers", "produced", "aside")),
            f"{each.published_records:,}",
            _held(each),
        ]
        for each in found
        for name in each.watermarks
    ]
    print_table(
        "interval, computation, watermark, >records, >late, >timers, >produced, >put aside, >published, held back by",
        rows,
    )
    for each in found:
        for line in each.faults:
            click.echo(line)


# -- rescale, reload -------------------------------------------------------------------------------------------------
@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--processes", type=click.IntRange(1, 64), metavar="N", help="Target number of intervals.")
@click.option("--split", metavar="INTERVAL", help="Divide one in two.")
@click.option("--at", metavar="HASH", help="With --split: the first hash of the second half (0x80000000); default: "
                                           "in the middle.")  # fmt: skip
@click.option("--merge", nargs=2, metavar="INTERVAL INTERVAL", help="Make one of two neighbours.")
@click.option("--timeout", type=click.FloatRange(min=1.0), default=300.0, show_default=True,
              help="Seconds for each split or merge.")  # fmt: skip
@dry_run
@formatted
def rescale(
    file: Path, state: Path | None, processes: int | None, split: str | None, at: str | None,
    merge: tuple[str, str] | None, timeout: float, dry_run: bool, out: Printed,
) -> int:  # fmt: skip
    """Divide the keys of FILE's topology among more or fewer processes, while it runs or while it does not.

    Each process owns an interval of hashes of keys. A split or a merge ends the processes concerned, moves their
    state, and starts the new ones; the others go on. No record is lost or counted twice. One that was interrupted is
    made by photon compute run before anything else. Shows the intervals.

    \b
    Examples:
      photon compute rescale spend.py --processes 4
      photon compute rescale spend.py --split i0
      photon compute rescale spend.py --merge i3 i4
      photon compute rescale spend.py --processes 2 --dry-run
    Exit codes: 0 done, 1 refused, or not in time, 2 wrong usage.
    """
    from photon.assembly.computing import Site, default_state, load_topology
    from photon.assembly.rescaling import make, settled
    from photon.computing.intervals import merge_of, split_of, toward

    asked = [each for each in (processes, split, merge) if each is not None]
    if len(asked) > 1 or (at is not None and split is None):
        raise UsageError("say --processes N, --split INTERVAL or --merge INTERVAL INTERVAL, one of them; --at goes "
                         "with --split")  # fmt: skip
    topology = load_topology(file)
    site = Site(topology, file.resolve().parent, state or default_state(file, topology))
    site.refuse_shared("its intervals are not split or merged", "photon compute init gives them to machines")
    known = site.table.look() if dry_run else settled(site, timeout)
    intervals, free = known.intervals, known.free

    def next_move() -> Move | None:
        if split is not None:
            return split_of(intervals, split, _hash(at), free)
        if merge is not None:
            return merge_of(intervals, *merge, free)
        return None if processes is None else toward(intervals, processes, free)

    while (move := next_move()) is not None:
        _say(f"{move}{', not done' if dry_run else ''}")
        intervals, free = intervals.after(move) if dry_run else make(site, move, timeout), free + len(move.new)
        if processes is None:
            break
    rows = [[each.id, f"{each.low:#010x}", f"{each.high:#010x}"] for each in intervals.all]
    document = [{"interval": each.id, "from": each.low, "below": each.high} for each in intervals.all]
    out.show({"topology": topology.name, "intervals": document}, lambda: print_table("interval, from, below", rows))
    return DONE


def _hash(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        raise UsageError(f"--at {text}: a hash is a number below 0x100000000") from None


@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--timeout", type=click.FloatRange(min=1.0), default=60.0, show_default=True,
              help="Seconds until all processes run it.")  # fmt: skip
@formatted
def reload(file: Path, state: Path | None, timeout: float, out: Printed) -> int:
    """Make a running photon compute run apply its changed FILE: computations and streams added, taken out, mended.

    FILE is read and checked first; one with a mistake changes nothing. What is new sees what comes from then on; the
    state of what was taken out stays, for the day it is added again. Where nothing runs, the next start applies it.

    \b
    Example:
      photon compute reload spend.py
    Exit codes: 0 all processes run it, or none runs; 1 not in time, 2 wrong usage or a mistake in FILE.
    """
    from photon.assembly.computing import Site, default_state, load_topology
    from photon.assembly.rescaling import reload as reloaded

    topology = load_topology(file)
    site = Site(topology, file.resolve().parent, state or default_state(file, topology))
    site.refuse_shared("its file is not reloaded", "stop photon compute run on each machine and start it")
    runs = reloaded(site, timeout)
    people = "all processes run it" if runs else "nothing runs; the next start applies it"
    computations = list(topology.parts)
    out.show({"topology": topology.name, "computations": computations, "running": runs}, people)
    return DONE
