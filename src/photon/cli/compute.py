"""``photon compute``: computations over what is published."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Printed, formatted

if TYPE_CHECKING:
    from photon.assembly.computing import Site
    from photon.computing.journal import Status

PROGRESS_S = 5.0
RESTART_S = 1.0
SILENT_S = 30.0
"""An owner that has said nothing for so long is not there."""

_state = click.option(
    "--state", type=PATH, metavar="DIR",
    help="What is kept of it; default: .photon-compute/NAME next to FILE, NAME of the topology.",
)  # fmt: skip


@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--hbase", "thrift", multiple=True, required=True, metavar="HOST:PORT",
              help="A Thrift 2 server of it; may be repeated.")  # fmt: skip
@click.option("--table", default="photon_computing", show_default=True, metavar="NAME",
              help="HBase's table, of all topologies; NAMESPACE:NAME for one in a namespace.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Of a new topology: into so many intervals are its keys divided.")  # fmt: skip
@click.option("--intervals", metavar="NAME,NAME",
              help="Those of this machine, whoever had them; default: all that no machine has yet.")  # fmt: skip
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
    from photon.config.errors import UsageError

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
@click.option("--once", is_flag=True, help="What is published now is all: the watermark goes to the end of time, and "
                                           "it ends when all is computed.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Of a new state: into so many intervals are its keys divided, each with a process; a state that "
              "is there keeps its own.")  # fmt: skip
@click.option("--metrics", metavar="HOST:PORT", help="Answer /metrics there, for Prometheus, and /healthz.")
@click.option("--only", multiple=True, hidden=True, metavar="INTERVAL")
@formatted
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--stop-with-parent", is_flag=True, help="End when standard input ends.")
def run(
    file: Path, state: Path | None, once: bool, processes: int, metrics: str | None, only: tuple[str, ...],
    quiet: bool, stop_with_parent: bool, out: Printed,
) -> int:  # fmt: skip
    """Run the computations of a Python FILE, its `topology`, until SIGTERM.

    Reads what is published, each record once in what it keeps and publishes, whatever is killed. Ended, it continues
    where it was. Paths in FILE are relative to it.

    \b
    Examples:
      photon compute run spend.py
      photon compute run spend.py --once
      photon compute run zeitgeist.py --processes 4 --state /var/lib/zeitgeist
    Exit codes: 0 done, or ended by SIGTERM; 3 the same, and records were put aside because a computation failed on
    them, as said; 1 failed, 2 wrong usage.
    """
    from photon.assembly.computing import Site, default_state, load_topology

    topology = load_topology(file)
    site = Site(topology, file.resolve().parent, state or default_state(file, topology))
    stop = _stopped(with_parent=stop_with_parent)
    progress = _Progress(quiet=quiet or out.json or bool(only))
    if metrics is not None:
        _serve_metrics(metrics, progress)
    site.intervals(processes)
    here = list(only) or site.here()
    if only or len(here) == 1:
        found = _here(site, only, stop, progress, once=once)
    else:
        options = ["--state", str(site.state), *(["--once"] if once else [])]
        found = _apart(site, here, [str(file), *options], stop, progress, once=once)
    if only:
        return DONE
    out.show({"topology": topology.name, "owners": [_document(each) for each in found]}, lambda: _print(found))
    return ATTENTION if any(each.counts.get("aside") for each in found) else DONE


def _here(site: Site, only: Sequence[str], stop: threading.Event, progress: _Progress, *, once: bool) -> list[Status]:
    from photon.assembly.computing import Running

    found: list[Status] = []

    def look(now: list[Status]) -> None:
        found[:] = now
        progress.show(now)

    running = Running(site, only, once=once, tell=_say)
    try:
        running.run(stop, look)
    finally:
        running.close()
    return found


def _apart(
    site: Site,
    here: Sequence[str],
    arguments: Sequence[str],
    stop: threading.Event,
    progress: _Progress,
    *,
    once: bool,
) -> list[Status]:
    """A process for each interval. One that is killed is started again; where one fails, all end."""
    from photon.assembly.computing import say_watermarks
    from photon.computing.journal import PublishedWatermark, read_status
    from photon.config.errors import PhotonError

    intervals = site.intervals()
    command = [sys.executable, "-m", "photon", "compute", "run", *arguments, "--stop-with-parent", "--quiet"]
    began_ns = site.clock.now_ns()
    journals: dict[str, PublishedWatermark] = {}
    children: dict[str, subprocess.Popen[bytes]] = {}

    def found() -> list[Status]:
        known = read_status(site.disk, site.state)
        return [each for each in known if each.at_ns >= began_ns and each.interval in here]

    failed = ""
    try:
        while not stop.is_set():
            for name in here:
                if name not in children:
                    children[name] = subprocess.Popen([*command, "--only", name], stdin=subprocess.PIPE)
                elif (code := children[name].poll()) is not None:
                    if code >= 0:
                        failed = f"the process of the interval {name} has ended with {code}; see what it said"
                        break
                    _say(f"the process of the interval {name} was killed by signal {-code}; it is started again")
                    del children[name]
            if failed:
                break
            now = found()
            say_watermarks(site, intervals, now, journals)
            progress.show(now)
            if once and len(now) == len(here) and all(each.ended for each in now):
                break
            stop.wait(RESTART_S)
    finally:
        for child in children.values():
            child.terminate()
        for child in children.values():
            child.wait()
    if failed:
        raise PhotonError(failed)
    now = found()
    say_watermarks(site, intervals, now, journals)
    return now


def _stopped(*, with_parent: bool) -> threading.Event:
    import os
    import signal

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if with_parent:

        def watch() -> None:
            while os.read(0, 4096):
                pass
            stop.set()

        threading.Thread(target=watch, daemon=True).start()
    return stop


def _say(line: str) -> None:
    click.echo(f"photon: {' '.join(line.split())}", err=True)


class _Progress:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = 0.0
        self.found: Sequence[Status] = ()

    def show(self, found: Sequence[Status]) -> None:
        """A line now and then, on standard error."""
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


def _serve_metrics(address: str, progress: _Progress) -> None:
    """In a thread of its own. Raises CannotListen."""
    from photon.computing.journal import put_status
    from photon.config.metrics.readings import Readings
    from photon.status.http import Answer, HttpServer, plain

    def answer(path: str) -> Answer | None:
        if path == "/healthz":
            return plain("ok")
        if path != "/metrics":
            return None
        readings = Readings()
        put_status(readings, progress.found)
        return Answer(readings.text().encode(), "text/plain; version=0.0.4; charset=utf-8")

    HttpServer(answer).start_in_thread(address)


def _held(each: Status) -> str:
    return each.held or "; ".join(who for names in each.held_by.values() for who in names)


def _time(time_ns: int | None) -> str:
    from photon.computing.wire import ENDED_NS, NEVER_NS
    from photon.config.clock import utc

    if time_ns is None or time_ns == NEVER_NS:
        return "-"
    return "end" if time_ns == ENDED_NS else utc(time_ns)


@click.command()
@click.argument("file", type=PATH, required=False)
@_state
@formatted
def status(file: Path | None, state: Path | None, out: Printed) -> int:
    """Show what running computations have processed, their watermarks, and what failed.

    \b
    Examples:
      photon compute status spend.py
      photon compute status --state /var/lib/zeitgeist -o json
    Exit codes: 0 shown, 3 records were put aside, or a process is silent.
    """
    from photon.assembly.computing import default_state, load_topology, statuses
    from photon.config.errors import UsageError

    if (file is None) == (state is None):
        raise UsageError("name FILE, or its state with --state")
    found = statuses(state if file is None else default_state(file, load_topology(file)))  # type: ignore[arg-type]
    out.show({"owners": [_document(each) for each in found]}, lambda: _print(found))
    silent = any(time.time_ns() - each.at_ns > SILENT_S * 1e9 for each in found)
    return ATTENTION if silent or any(each.counts.get("aside") for each in found) else DONE


def _document(each: Status) -> dict[str, Any]:
    return {
        "topology": each.topology,
        "interval": each.interval,
        "pid": each.pid,
        "at": _time(each.at_ns),
        **each.counts,
        "records_per_s": each.records_per_s,
        "published": each.published_records,
        "computations": {
            name: {"watermark": _time(mark.percentile_ns), "waiting": mark.waiting}
            for name, mark in each.watermarks.items()
        },
        "held_by": each.held_by,
        "held": each.held,
        "faults": each.faults,
    }


def _print(found: Sequence[Status]) -> None:
    from photon.cli.tables import print_table

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
