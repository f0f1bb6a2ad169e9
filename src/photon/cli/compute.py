"""``photon compute``: runs and manages computations over published records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, Printed, dry_run, formatted, on_spark, taken
from photon.cli.tables import say
from photon.config.clock import utc
from photon.config.errors import UsageError
from photon.fleet.parts import Column, Part, picked

if TYPE_CHECKING:
    from photon.computing.intervals import Move
    from photon.computing.journal import Status

PROGRESS_S = 5.0
# Options of ``run`` for ``--on here`` only, and for ``--on spark`` only.
_HERE, _SPARK = "processes metrics share accept_lost_offsets", "master spark partitions records"
SILENT_S = 30.0  # an owner that reports nothing for this long counts as silent

_state = click.option(
    "--state", type=PATH, metavar="DIR",
    help="State directory (default: .photon-compute/TOPOLOGY next to FILE).",
)  # fmt: skip


@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--hbase", "thrift", multiple=True, required=True, metavar="HOST:PORT",
              help="A Thrift 2 server of HBase; may be repeated.")  # fmt: skip
@click.option("--table", default="photon_computing", show_default=True, metavar="NAME",
              help="Table in HBase, shared by all topologies: NAME, or NAMESPACE:NAME.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Number of key intervals of a new topology.")  # fmt: skip
@click.option("--intervals", metavar="NAME,NAME",
              help="Intervals this machine takes over, even from another (default: all unassigned).")  # fmt: skip
@click.option(
    "--durable/--not-durable",
    default=None,
    help="Assert that this HBase keeps acknowledged writes (it runs on HDFS), or accept that it may not.",
)
@formatted
def init(
    file: Path, state: Path | None, thrift: tuple[str, ...], table: str, processes: int, intervals: str | None,
    durable: bool | None, out: Printed,
) -> int:  # fmt: skip
    """Keep a topology's state in HBase. Assigns intervals of FILE's keys to this machine.

    With several machines, run this once on each one with its own --state, then run photon compute run. If an interval
    belongs to another machine, it is taken over: that machine's processes can no longer write. Run this again to
    change servers or intervals. Acknowledged writes survive a crash of HBase only on HDFS. HBase does not report its
    file system, so you must say which it is.

    \b
    Examples:
      photon compute init spend.py --hbase hbase1:9090 --hbase hbase2:9090 --durable --processes 4 --intervals i0,i1
      photon compute init spend.py --hbase hbase1:9090 --durable --intervals i2,i3
      photon compute init spend.py --hbase 127.0.0.1:9091 --not-durable
    Exit codes: 0 done; 1 failed; 2 wrong usage, or neither --durable nor --not-durable was given.
    """
    from photon.assembly.computing import site_of
    from photon.computing.site import keep_in_hbase

    if durable is None:
        raise UsageError(
            f"HBase at {thrift[0]} keeps acknowledged writes only if it runs on HDFS: give --durable if it does; "
            "with --not-durable, a crash of HBase may set computations back behind their published records"
        )
    site = site_of(file, state)
    named = [each.strip() for each in (intervals or "").split(",") if each.strip()]
    here, made = keep_in_hbase(site, thrift, table, processes, named, durable=durable)
    document = {"topology": site.topology.name, "table": table, "made": made, "durable": durable, "intervals": here}
    word = "" if durable else "; NOT durable: a crash of HBase may lose recent state"
    out.show(document, f"HBase, table {table}: {site.topology.name} has {', '.join(here)} here{word}")
    return DONE


@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--once", is_flag=True, help="Read the records published now, fire all timers, and stop. A later "
                                           "run continues from there.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Number of key intervals of a new state, each with a process; an existing state keeps "
              "its number (see photon compute rescale).")  # fmt: skip
@click.option("--accept-lost-offsets", is_flag=True,
              help="For kafka://…: continue although Kafka removed messages before they were read.")  # fmt: skip
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics (for Prometheus) and /healthz at this address.")
@click.option("--on", type=click.Choice(["here", "spark"]), default="here", show_default=True,
              help="spark: run on a cluster with Structured Streaming, with a separate state.")  # fmt: skip
@on_spark
@click.option("--partitions", type=click.IntRange(1, 10_000), default=8, show_default=True,
              help="On Spark: number of key partitions of a new state; cannot be changed later.")  # fmt: skip
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True,
              help="On Spark: approximate maximum number of records per batch.")  # fmt: skip
@click.option("--share", type=(int, int), hidden=True, help="Number of this process, and total number of processes.")
@formatted
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--stop-with-parent", is_flag=True, help="Stop when standard input ends.")
def run(
    file: Path, state: Path | None, once: bool, processes: int, accept_lost_offsets: bool, metrics: str | None,
    on: str, master: str | None, spark: dict[str, str], partitions: int, records: int, share: tuple[int, int] | None,
    quiet: bool, stop_with_parent: bool, out: Printed,
) -> int:  # fmt: skip
    """Run the `topology` of a Python FILE until SIGTERM.

    Reads published records. Each counts once in state and output, even after a crash. The next run continues where
    this one ended. Paths in FILE are relative to its directory.

    \b
    Examples:
      photon compute run spend.py
      photon compute run spend.py --once
      photon compute run zeitgeist.py --processes 4 --state /var/lib/zeitgeist
      photon compute run spend.py --on spark --master spark://host:7077 --state /mnt/shared/spend
    Exit codes: 0 done, or ended by SIGTERM; 3 the same, but records were put aside because a computation failed on
    them; 1 failed; 2 wrong usage.
    """
    from photon.computing.journal import put_status
    from photon.config.stopping import stop_flag
    from photon.operations import compute_here
    from photon.status.http import serve_metrics

    stop = stop_flag(with_parent=stop_with_parent)
    taken(
        f"--on {on}",
        _SPARK if on == "spark" else _HERE,
        "file state once on output_format quiet stop_with_parent",
        {},
    )
    if on == "spark":
        from photon.operations.compute_on_spark import run as run_on_spark

        said = run_on_spark(
            file, state, once=once, master=master, settings=spark, partitions=partitions,
            records=records, stop=stop, tell=say,
        )  # fmt: skip
        _show(out, [said], topology=said.topology)
        return ATTENTION if said.counts.get("aside") else DONE
    progress = _Progress(quiet=quiet or out.json or share is not None)
    if metrics is not None:
        serve_metrics(metrics, lambda into: put_status(into, progress.found))
    topology = compute_here.run(
        file, state, share, once=once, processes=processes, stop=stop, tell=_say, look=progress.show,
        accept_lost_offsets=accept_lost_offsets,
    )  # fmt: skip
    if share is not None:
        return DONE
    found = progress.found
    _show(out, found, topology=topology)
    return ATTENTION if any(each.counts.get("aside") for each in found) else DONE


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
    return each.held or "; ".join(f"{stream}: {', '.join(who)}" for stream, who in each.held_by.items() if who)


def _time(time_ns: int | None) -> str:
    from photon.computing.wire import ENDED_NS, NEVER_NS

    if time_ns is None or time_ns == NEVER_NS:
        return "-"
    return "end" if time_ns == ENDED_NS else utc(time_ns)


# -- photon status compute -------------------------------------------------------------------------------------------
def status(at: Deployed, name: str | None = None) -> int:
    """``photon status compute``. ``name``: the file, or its state directory. Exit code 3: records were put aside, or
    a process is silent. Raises UsageError."""
    from photon.assembly.computing import default_state, load_topology
    from photon.computing.site import statuses

    if name is None:
        raise UsageError("name the FILE of the computations, or their state directory")
    path = Path(name)
    found = statuses(path if path.is_dir() else default_state(path, load_topology(path)))
    _show(at, found)
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


STAGES = (
    *map(Column, ("interval", "computation", "watermark", ">records", ">late", ">timers", ">produced")),
    Column(">put aside", "aside"), Column(">published"), Column("held back by", "held", str),
)  # fmt: skip


def _show(out: Printed, found: Sequence[Status], **more: str) -> None:
    """Shows one table row per computation and interval. With ``-o json``, the document has one entry per interval."""
    owners = [_document(each) for each in found]
    rows = [
        {**dict.fromkeys(("records", "late", "timers", "produced", "aside"), 0), **owner, "computation": name,
         **mark, "held": _held(each)}
        for each, owner in zip(found, owners, strict=True)
        for name, mark in owner["computations"].items()
    ]  # fmt: skip
    faults = (line for each in found for line in each.faults)
    out.show({**more, "owners": owners}, Part("", rows, STAGES), *faults)


# -- rescale, reload -------------------------------------------------------------------------------------------------
@click.command()
@click.argument("file", type=PATH)
@_state
@click.option("--processes", type=click.IntRange(1, 64), metavar="N", help="Target number of intervals.")
@click.option("--split", metavar="INTERVAL", help="Divide this interval in two.")
@click.option("--at", metavar="HASH", help="With --split: first hash of the second half, such as 0x80000000 "
                                           "(default: the middle).")  # fmt: skip
@click.option("--merge", nargs=2, metavar="INTERVAL INTERVAL", help="Merge two neighbouring intervals.")
@click.option("--timeout", type=click.FloatRange(min=1.0), default=300.0, show_default=True,
              help="Time limit for each split or merge, in seconds.")  # fmt: skip
@dry_run
@formatted
def rescale(
    file: Path, state: Path | None, processes: int | None, split: str | None, at: str | None,
    merge: tuple[str, str] | None, timeout: float, dry_run: bool, out: Printed,
) -> int:  # fmt: skip
    """Divide FILE's keys among more or fewer processes. The topology may be running or not.

    Each process owns an interval of key hashes. A split or merge stops the processes concerned, moves their state,
    and starts the new ones; the others keep running. No record is lost or counted twice. An interrupted split or
    merge is completed by the next photon compute run, before anything else. Shows the intervals.

    \b
    Examples:
      photon compute rescale spend.py --processes 4
      photon compute rescale spend.py --split i0
      photon compute rescale spend.py --merge i3 i4
      photon compute rescale spend.py --processes 2 --dry-run
    Exit codes: 0 done; 1 refused, or not done in time; 2 wrong usage.
    """
    from photon.assembly.computing import site_of
    from photon.computing.intervals import merge_of, split_of, toward
    from photon.computing.rescaling import make, settled

    asked = [each for each in (processes, split, merge) if each is not None]
    if len(asked) > 1 or (at is not None and split is None):
        raise UsageError("give only one of --processes N, --split INTERVAL and --merge INTERVAL INTERVAL; --at "
                         "requires --split")  # fmt: skip
    site = site_of(file, state)
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
    rows = [{"interval": each.id, "from": each.low, "below": each.high} for each in intervals.all]
    columns = (Column("interval"), *(Column(name, name, "{:#010x}".format) for name in ("from", "below")))
    out.part(Part("intervals", rows, columns), topology=site.topology.name)
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
              help="Seconds to wait until all processes run the changed FILE.")  # fmt: skip
@formatted
def reload(file: Path, state: Path | None, timeout: float, out: Printed) -> int:
    """Apply the changed FILE of a running topology. Computations and streams may be added, removed and corrected.

    FILE is checked first; if it has a mistake, nothing changes. New computations see only later records. The state of
    removed ones is kept in case they are added again. If nothing runs, the next start applies the file.

    \b
    Example:
      photon compute reload spend.py
    Exit codes: 0 all processes run the changed FILE, or none runs; 1 not done in time; 2 wrong usage or a mistake in
    FILE.
    """
    from photon.assembly.computing import site_of
    from photon.computing.rescaling import reload as reloaded

    site = site_of(file, state)
    site.refuse_shared("its file cannot be reloaded", "stop photon compute run on each machine and start it")
    runs = reloaded(site, timeout)
    people = "all processes run it" if runs else "nothing runs; the next start applies it"
    computations = list(site.topology.parts)
    out.show({"topology": site.topology.name, "computations": computations, "running": runs}, people)
    return DONE


# -- replay ----------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("file", type=PATH)
@click.option("--name", required=True, metavar="NAME", help="Name of the replay; it publishes into DIRECTORY.NAME.")
@click.option("--from", "since", metavar="TIME",
              help="Publish results from this event time on: 2026-11-21T09, epoch seconds, 2d (ago); "
              "required the first time.")  # fmt: skip
@_state
@click.option("--once", is_flag=True, help="Read the records published now, fire all timers, and stop.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Number of key intervals of a new replay.")  # fmt: skip
@click.option("--in-place", is_flag=True, help="Finish, replace the published streams with the replay's, and end.")
@formatted
@click.option("--quiet", is_flag=True, help="Show no progress.")
def replay(
    file: Path, name: str, since: str | None, state: Path | None, once: bool, processes: int, in_place: bool,
    quiet: bool, out: Printed,
) -> int:  # fmt: skip
    """Compute again after a bug in FILE was fixed. Reads all sources from the beginning and publishes into new
    streams.

    The replay has its own state. For each published DIRECTORY it publishes the records with event times from TIME on
    in DIRECTORY.NAME. Run it again to continue. --in-place retires the old streams, whose run must have ended: their
    records before TIME stay valid, and readers at their end are told where to continue. From then on, photon compute
    run continues the new streams.

    \b
    Examples:
      photon compute replay spend.py --name fix1 --from 2026-11-20 --once
      photon compute replay spend.py --name fix1 --from 2026-11-20 --processes 4
      photon compute replay spend.py --name fix1 --in-place
    Exit codes: 0 done, or ended by SIGTERM; 3 the same, but records were put aside because a computation failed on
    them; 1 failed; 2 wrong usage.
    """
    from photon.assembly.computing import begin_replay
    from photon.cli.units import given_ns
    from photon.config.stopping import stop_flag
    from photon.operations import compute_here

    stop = stop_flag()
    from_ns = None if since is None else given_ns("--from", since, time.time_ns())
    state = begin_replay(file, state, name, from_ns)
    progress = _Progress(quiet=quiet or out.json)
    if in_place:
        placed = compute_here.put_in_place(
            file, state, once=once, processes=processes, stop=stop, tell=_say, look=progress.show
        )
        said = "in place: photon compute run continues from it" if placed else "not in place yet: run this again"
        out.show({"state": str(state), "placed": placed}, f"{state}: {said}")
        return DONE
    compute_here.run(
        file, state, None, once=once, processes=processes, stop=stop, tell=_say, look=progress.show
    )  # fmt: skip
    found = progress.found
    _show(out, found, state=str(state))
    return ATTENTION if any(each.counts.get("aside") for each in found) else DONE
