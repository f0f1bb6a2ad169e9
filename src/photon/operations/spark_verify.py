"""``photon spark verify``: gathers the inputs of a verification from a running deployment, in the order of rule 15,
and runs it: the dispatchers' places, the registry's export, then outputs and logs."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from photon.adapters.join_adapters import join_named
from photon.assembly.samples import compare_here
from photon.batch.columns import split_digests
from photon.config.disk import RealDisk, naming
from photon.config.errors import PhotonError, UsageError
from photon.config.file_lock import alone
from photon.config.settings import Settings
from photon.dispatcher.database import count_waiting, read_standing
from photon.dispatcher.ledger import UNKNOWN_HOUR, hour_name
from photon.dispatcher.partitions import there
from photon.fleet.ledger import Account, accounts, ledger_file
from photon.idregistry.client.deployment_key import deployment_key
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.operate.backup import check_backup, config_of, read_manifest
from photon.objects.disk import UrlDisk
from photon.objects.paths import ObjectPath
from photon.spark.backfill.known import known_backfills, source_of
from photon.spark.pipeline.journal import journal_of
from photon.spark.pipeline.standing import read_standing as read_standing_on_spark
from photon.spark.pipeline.waiting import WaitingFile, events_of, first_read_of
from photon.spark.recover.repairs import DIRECTORY, Repairs
from photon.spark.session import said_by_spark, session
from photon.spark.sources import RegistrySource, pipeline_sources
from photon.spark.verify.acknowledged import kept_below
from photon.spark.verify.causes import CommandLine
from photon.spark.verify.figures import LedgerLine
from photon.spark.verify.nights import Nights, chosen, latest_hour
from photon.spark.verify.reading import VerifyTask
from photon.spark.verify.run import VerifyOutcome, run
from photon.spark.verify.verdict import check_below, fingerprint, put_below

LOCK_NAME = "lock"
HOUR_NS = 3_600_000_000_000
NS_PER_S = 1_000_000_000
UNSEEN = "its dispatcher's state is not on this machine: unread or waiting events are judged as well"
Export = Callable[[Path], None]  # writes a backup of the registry to a new directory


@dataclass(frozen=True, slots=True)
class Wish:
    report: Path
    from_ns: int | None = None  # `None` means from the oldest day that is not closed.
    # `None` means to the last hour that can be judged, or without ``from_ns`` to the last whole day.
    to_ns: int | None = None
    # Working directory, which also keeps the next run's state; None means next to the report, or to the deployment
    # file if the report is at a URL.
    work: Path | None = None
    config: Path = Path("photon.toml")  # the deployment file, for commands in the report
    join: str | None = None
    export: Path | None = None  # a backup of the registry; None means one is taken now
    no_registry: bool = False
    keep_export: Path | None = None
    backfills: Sequence[Path] = ()
    full: bool = False
    allow_empty: bool = False
    master: str | None = None
    spark: Mapping[str, str] | None = None


def nightly(settings: Settings, base: Path, wish: Wish, export: Export, say: Callable[[str], None]) -> VerifyOutcome:
    """Verifies a join. ``base``: the deployment file's directory. Raises PhotonError, OSError and Spark's errors."""
    join = join_named(settings, wish.join)
    there = wish.report if isinstance(wish.report, ObjectPath) else None
    working = wish.work or (wish.report.parent if there is None else base)
    with _alone(working, None if there else wish.report, join), _working(working, wish.report.name) as work:
        if there is not None:
            check_below(there)
        task = _task(settings, base, join, wish, working, say)
        names = [source.datacentre for source in task.sources.outputs]
        _add_backfills(task, base, join, wish)
        _add_standing(settings, base, names, task, work)
        if not wish.no_registry:
            known = _add_registry(task, wish, work, export, say)
            compare_here(settings, base, join, known.samples(join))
        task.ledger = _ledger(_accounts(settings, base, names), task)
        spark = session("photon spark verify", master=wish.master, settings=wish.spark)
        try:
            if there is None:
                return run(spark, task, wish.report, say)
            return run(spark, task, work / "report", say, lambda report: put_below(report, there))
        except Exception as error:
            if (why := said_by_spark(error)) is None:
                raise
            raise VerifyFailed(f"{why}; then run the same command again") from error


class VerifyFailed(PhotonError):
    """The verification's Spark job failed."""


def _task(
    settings: Settings, base: Path, join: str, wish: Wish, working: Path, say: Callable[[str], None]
) -> VerifyTask:
    """Returns the task before any input is read. Raises UsageError for a range that cannot be judged."""
    sources = pipeline_sources(settings, base, join)
    names = [source.datacentre for source in sources.outputs]
    kept, now_ns, patience_s = kept_below(working, join), time.time_ns(), settings.join[join].unmatched_after
    nights = Nights.known(kept)
    begin, end = (None if ns is None else ns // HOUR_NS for ns in (wish.from_ns, wish.to_ns))
    first: list[int] = []
    if begin is None and not nights.nights:
        hours = [each.whole.hours for each in _accounts(settings, base, names) if each.whole is not None]
        first = [min(known) for each in hours if (known := each.keys() - {UNKNOWN_HOUR})]
    range_ = chosen(begin, end, latest_hour(now_ns, patience_s or 0.0), nights, first)
    if range_.why:
        say(range_.why)
    repairs = Repairs(RealDisk(), base / DIRECTORY)
    has_repairs = (base / DIRECTORY).is_dir()
    return VerifyTask(
        sources=sources,
        deployment=fingerprint(settings, deployment_key(settings, base)),
        from_hour=range_.begin,
        to_hour=range_.end,
        made_at=_text(now_ns),
        given_up=repairs.given_up_unmatched() if has_repairs else None,
        others=tuple(name for name in settings.datacentre if name not in names),
        notes=[range_.why] if range_.why else [],
        full=wish.full,
        kept=kept,
        waited_before_ns=None if patience_s is None else latest_hour(now_ns, patience_s) * HOUR_NS,
        allow_empty=wish.allow_empty,
        commands=_commands(wish, range_.begin, range_.end),
    )


@contextmanager
def _alone(working: Path, report: Path | None, join: str) -> Iterator[None]:
    """Locks directory and report; raises UsageError while another verification uses either."""
    kept = kept_below(working, join)
    kept.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            busy = f"{report}: another photon spark verify writes it; wait until it ends"
            held.enter_context(alone(report.with_name(f".{report.name}.lock"), busy))
        busy = f"{working}: another photon spark verify of join {join} works there; wait, or name another --work"
        held.enter_context(alone(kept / LOCK_NAME, busy))
        yield


def _commands(wish: Wish, from_hour: int, to_hour: int) -> CommandLine:
    report = wish.report if isinstance(wish.report, ObjectPath) else wish.report.absolute()
    work = None if wish.work is None else str(wish.work.absolute())
    return CommandLine(
        str(wish.config.absolute()), str(report), hour_name(from_hour), hour_name(to_hour), wish.join, work
    )


def _add_backfills(task: VerifyTask, base: Path, join: str, wish: Wish) -> None:
    """Adds the backfills named by the operator, and those that this deployment remembers."""
    disk, found = UrlDisk(), dict.fromkeys(path.absolute() for path in wish.backfills)
    found |= dict.fromkeys(known_backfills(disk, base, join, task.from_hour * HOUR_NS, task.to_hour * HOUR_NS))
    task.backfills = tuple(source_of(disk, path, join) for path in found)


@contextmanager
def _working(directory: Path, name: str) -> Iterator[Path]:
    """Creates a directory for this run, visible to executors like its parent, and removes it at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{name}.work-", dir=directory)).absolute()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _add_standing(settings: Settings, base: Path, names: Sequence[str], task: VerifyTask, work: Path) -> None:
    """Adds read positions and waiting events of the dispatchers, and joins on Spark, whose state is on this
    machine."""
    waiting = work / "waiting"
    waiting.mkdir()
    schema = pa.schema([("digest", pa.binary())])
    places: list[tuple[str, str, int, str]] = []
    known, waited = [], {}
    for name in names:
        pipeline = settings.datacentre[name]
        state = base / pipeline.state
        path = ledger_file(state)
        kept = waiting / f"{name}.parquet"
        with naming(kept), pq.ParquetWriter(kept, schema) as writer:

            def take(digests: Sequence[bytes], writer: pq.ParquetWriter = writer) -> None:
                writer.write_table(pa.table({"digest": pa.array(digests, pa.binary())}, schema=schema))

            overdue = Overdue(task.from_hour * HOUR_NS, task.to_hour * HOUR_NS, task.waited_before_ns or 0)
            if (
                pipeline.on_spark
                and (standing := _on_spark(journal_of(state, pipeline.spark_slot(name)), overdue)) is not None
            ):
                found, digests, waits = standing
                take(digests)
            elif not pipeline.on_spark and there(path):
                found, waits = read_standing(path, take), count_waiting(path, *overdue)
            else:
                task.notes.append(f"{name}: {UNSEEN}")
                continue
            places += ((name, *place) for place in found)
            known.append(name)
            if task.waited_before_ns is not None:
                waited[name] = waits
    task.waited = waited
    task.places, task.places_of, task.waiting = places, tuple(known), waiting


class Overdue(NamedTuple):
    """Selects events from ``begin_ns`` to ``end_ns`` that were first read before ``before_ns``."""

    begin_ns: int
    end_ns: int
    before_ns: int


def _on_spark(directory: Path, overdue: Overdue) -> tuple[list[tuple[str, int, str]], list[bytes], int] | None:
    """Returns places, digests of waiting events, and the number of overdue ones of a join on Spark at one commit."""

    def look(file: WaitingFile, rows: Sequence[int]) -> tuple[list[bytes], int]:
        at = np.array(rows, np.intp)
        times, first = events_of(file).times[at], first_read_of(file)[at]
        late = (overdue.begin_ns <= times) & (times < overdue.end_ns) & (first < overdue.before_ns)
        digests = split_digests(file.digests)
        return [digests[row] for row in rows], int(late.sum())

    if (standing := read_standing_on_spark(RealDisk(), directory, look)) is None:
        return None
    commit, found = standing
    places = [(log.identity, log.offset, log.path) for log in commit.logs]
    return places, [digest for digests, _ in found for digest in digests], sum(late for _, late in found)


def _add_registry(
    task: VerifyTask, wish: Wish, work: Path, export: Export, say: Callable[[str], None]
) -> ConfigMachine:
    """Adds the registry's export to the task; returns its slots and joins."""
    directory = wish.export
    if directory is None:
        directory = wish.keep_export or work / "export"
        say("exporting the registry")
        export(directory)
    manifest = read_manifest(RealDisk(), directory)
    made = datetime.fromisoformat(manifest.made_at)
    if made.tzinfo is None:
        made = made.replace(tzinfo=UTC)
    task.registry = RegistrySource(directory=str(directory.absolute()))
    task.exported_ns = int(made.timestamp()) * NS_PER_S
    if task.to_hour * HOUR_NS > task.exported_ns:
        raise UsageError(
            f"{directory}: was made at {manifest.made_at}, before --to; name an earlier --to, or make a newer export"
        )
    task.exported_at = _text(task.exported_ns)
    boundaries = [each.boundary_ns for each in check_backup(RealDisk(), directory) if each.boundary_ns is not None]
    task.boundary_ns = max(boundaries, default=None)
    return config_of(RealDisk(), directory, manifest)


def _accounts(settings: Settings, base: Path, names: Sequence[str]) -> list[Account]:
    return [each for each in accounts(settings, base) if each.datacentre in names]


def _ledger(found: Sequence[Account], task: VerifyTask) -> list[LedgerLine]:
    lines: list[LedgerLine] = []
    for account in found:
        if account.whole is None:
            task.notes.append(f"ledger of {account.datacentre}: {account.missing or 'it reports no hours'}")
            continue
        lines += (
            LedgerLine(hour, account.datacentre, line.as_dict() | line.apart())
            for hour, line in account.whole.hours.items()
            if task.from_hour <= hour < task.to_hour
        )
    return sorted(lines, key=lambda line: (line.hour or 0, line.datacentre))


def _text(time_ns: int) -> str:
    """Formats a time as the outputs do."""
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
