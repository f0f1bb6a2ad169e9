"""``photon table``: manages tables kept up to date by transactions and observers (docs/tables.md)."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import PATH, Deployed, Printed, deployed, formatted
from photon.cli.tables import say
from photon.cli.units import Duration
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.tables.tables import Tables

SHOWN = 1000

_database = click.option(
    "--database", type=PATH, metavar="FILE", help="A SQLite file, in place of the deployment's tables."
)


def _on_tables(command: Callable[..., Any]) -> Callable[..., Any]:
    return _database(deployed(required=False, sets=False, unless=["database"])(command))


@contextmanager
def _opened(at: Deployed, database: Path | None) -> Iterator[Tables]:
    """Opens the tables given by the options. Raises UsageError, StoreFailed."""
    from photon.tables.configured import open_tables
    from photon.tables.tables import Tables

    if database is not None and at.given is not None:
        raise UsageError("give either --database or --config")
    if database is None:
        base, settings = at.config.parent, at.settings.tables
        if settings is not None and not settings.thrift:
            _existing(base / settings.file)
        tables = open_tables(at.settings, base)
    else:
        tables = Tables.open(_existing(database))
    with tables:
        yield tables


def _existing(path: Path) -> Path:
    """Checks that the file exists, because opening it would create it. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; run a program that opens it, or photon table init, to create it")
    return path


# -- init ------------------------------------------------------------------------------------------------------------
@click.command()
@click.option("--not-durable", is_flag=True, help="On HBase: continue although acknowledged changes may be lost.")
@deployed(sets=False)
def init(at: Deployed, not_durable: bool) -> int:
    """Create a store of tables, in SQLite or HBase. Acknowledged writes survive a crash of HBase only on HDFS; on a
    local file system, a crash may leave half a transaction. HBase does not report its file system, so you must say
    which it is: set tables.durable = true, or give --not-durable.

    \b
    Examples:
      photon table init --config photon.toml
      photon table init --not-durable --config photon.toml
    Exit codes: 0 the store exists; 1 failed; 2 wrong usage, or the durability of HBase is not given.
    """
    from photon.tables.configured import open_tables

    settings = at.settings.tables
    if settings is not None and settings.thrift and not (settings.durable or not_durable):
        raise UsageError(
            f"tables.durable: is not set: HBase at {settings.thrift[0]} keeps acknowledged writes only if it "
            "runs on HDFS; set tables.durable = true if it does; with --not-durable, a crash may leave half a "
            "transaction"
        )
    with open_tables(at.settings, at.base) as tables:
        assert settings is not None
        made = tables.around.store.create()
        tables.around.timestamp()  # checks that the oracle answers
    durable = not settings.thrift or settings.durable
    where = f"HBase, table {settings.table}" if settings.thrift else f"SQLite, {settings.file}"
    document = {"store": "hbase" if settings.thrift else "sqlite", "made": made, "durable": durable}
    word = "" if durable else "; NOT durable: a crash of HBase may leave transactions half done"
    at.show(document, f"{where}: {'created' if made else 'exists already'}, its oracle answers{word}")
    return DONE


# -- scan ------------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("table", required=False)
@click.argument("row", required=False)
@click.argument("names", nargs=-1, metavar="[COLUMN]...")
@click.option("--locks", is_flag=True, help="Instead of rows: show locks of TABLE, or of all tables.")
@click.option("--from", "begin", default="", metavar="ROW", help="Start at this key.")
@click.option("--to", "end", metavar="ROW", help="Stop before this key.")
@click.option("--column", "columns", multiple=True, help="Only rows with this column; may be repeated.")
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, metavar="N",
              help="End after N rows.")  # fmt: skip
@_on_tables
def scan(
    at: Deployed, database: Path | None, table: str | None, row: str | None, names: tuple[str, ...], locks: bool,
    begin: str, end: str | None, columns: tuple[str, ...], limit: int,
) -> int:  # fmt: skip
    """Show the rows of a table, or one ROW, as of one moment. With COLUMNs, only these columns of ROW.

    Without TABLE, shows the names of the tables. With --locks, shows the locks of transactions that are in progress
    or whose client died. The next client that meets a dead client's lock resolves it: at once on the same machine,
    otherwise when it is old.

    \b
    Examples:
      photon table scan --database clicks.db
      photon table scan clusters f1 --database clicks.db
      photon table scan --locks --config photon.toml -o json
      watch -n 1 photon table scan campaigns --column clicks --config photon.toml
    Exit codes: 0 shown; 1 no such ROW, or no such column in it; 3 some locks are old or their client is dead.
    """
    if row is not None and (locks or begin or end or columns):
        raise UsageError("ROW cannot be combined with --locks, --from, --to or --column")
    if locks:
        return _show_locks(at, database, table)
    if table is not None and row is not None:
        return _show_row(at, database, table, row, names)
    with _opened(at, database) as tables:
        if table is None:
            known = tables.around.store.tables()
            at.show({"tables": known}, "\n".join(known))
            return DONE
        with tables.snapshot() as now:
            found = now.table(table).scan(begin, end, columns=columns or None)
            rows = [(each.key, each.values()) for each in itertools.islice(found, limit + 1)]
            start = now.start
    more = len(rows) > limit
    rows = rows[:limit]
    document: dict[str, Any] = {
        "table": table,
        "timestamp": start,
        "rows": [{"row": key, "values": values} for key, values in rows],
        "more": more,
    }

    named = sorted({column for _, values in rows for column in values})
    shown = (Column("row"), *(Column(name, partial(_value, name), str) for name in named))
    note = [f"there are more rows; the first {limit:,} are shown (see --limit, --from)"] if more else []
    at.show(document, Part("rows", document["rows"], shown), *note)
    return DONE


def _value(name: str, row: dict[str, Any]) -> str:
    return _text(row["values"][name]) if name in row["values"] else ""


def _show_row(at: Deployed, database: Path | None, table: str, row: str, names: tuple[str, ...]) -> int:
    with _opened(at, database) as tables, tables.snapshot() as now:
        found = now.table(table).row(row).values()
        shown = {column: found[column] for column in names or found if column in found}
        at.show(
            {"table": table, "row": row, "timestamp": now.start, "values": shown},
            Part("", [{"column": column, "value": _text(value)} for column, value in shown.items()], VALUES),
        )
    return DONE if shown else FAILED


VALUES = (Column("column"), Column("value"))
LOCKS = (
    Column("cell"), Column(">transaction", "transaction", str), Column(">age", "age_s", "{:.1f} s".format),
    Column("client", lambda row: f"{row['client']}{' (dead)' if row['dead'] else ''}"), Column("primary"),
)  # fmt: skip


def _show_locks(at: Deployed, database: Path | None, table: str | None) -> int:
    from photon.rows.api import EVER
    from photon.tables.cell import Lock, read_meta
    from photon.tables.collecting import locks as locks_of

    rows = []
    with _opened(at, database) as tables:
        around = tables.around
        for name in [table] if table is not None else around.store.tables():
            for cell, meta in locks_of(around.store, name, EVER):
                lock = read_meta(meta)
                assert isinstance(lock, Lock)
                age_s = (around.wall_ms() - lock.wall_ms) / 1000
                dead = around.liveness.dead(lock.token)
                rows.append(
                    {
                        "cell": "/".join(cell), "transaction": lock.start, "age_s": age_s, "client": lock.token,
                        "dead": dead, "old": age_s > around.limits.lock_age_s, "primary": "/".join(lock.primary),
                    }
                )  # fmt: skip

    at.part(Part("locks", rows, LOCKS))
    return ATTENTION if any(row["dead"] or row["old"] for row in rows) else DONE


@click.command()
@click.argument("names", nargs=-1, metavar="[TABLE]...")
@click.option("--collect", type=Duration(), metavar="AGE",
              help="First remove versions that no reader of the last AGE (10m) needs, from all tables; takes "
              "that long. Observers also do this regularly (tables.keep).")  # fmt: skip
@_on_tables
def verify(at: Deployed, database: Path | None, names: tuple[str, ...], collect: float | None) -> int:
    """Check every cell. Its meta, versions and locks must fit together, and the oracle must be ahead of them.

    Safe to run while transactions are running.

    \b
    Examples:
      photon table verify --config photon.toml
      photon table verify clicks campaigns --database clicks.db
      photon table verify --collect 10m --config photon.toml
    Exit codes: 0 all is well; 3 there are problems.
    """
    from photon.tables.verifying import verify as verified

    with _opened(at, database) as tables:
        collected = None if collect is None else tables.collect(collect)
        found = verified(tables.around, names or tables.around.store.tables())

    removed = [] if collected is None else [f"{many(collected, 'old version')} removed"]
    checked = (
        f"{many(found.cells, 'cell')}, {found.locks:,} locked ({found.old_locks:,} for long), "
        f"{many(found.notifications, 'notification')}; {many(found.wrong, 'problem')}"
    )
    at.show({**asdict(found), "collected": collected}, *removed, checked, *found.problems)
    return ATTENTION if found.wrong else DONE


def _text(value: Any) -> str:
    """Escapes control characters: values may come from anywhere and must not control the terminal."""
    import orjson

    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


# -- observe ---------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--threads", type=click.IntRange(1, 256), default=4, show_default=True,
              help="Maximum number of observers that run at the same time.")  # fmt: skip
@click.option("--once", is_flag=True, help="Stop when nothing is left to do.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus at this address (plain HTTP).")
@click.option(
    "--retire",
    metavar="OBSERVER",
    help="Retire an observer that no program defines any more, and stop; "
    "until then every change of its column is kept for it.",
)
@formatted
def observe(file: Path, threads: int, once: bool, metrics: str | None, retire: str | None, out: Printed) -> int:
    """Run the observers of a Python FILE until SIGTERM.

    Any number of these processes may run, on any machines: they share the work. If one is killed, its work is
    completed by another one or by its next run. A new observer waits some 4 s until every program knows it, and then
    processes existing rows. Observers also remove old versions from the tables. [observe.NAME] in a deployment file
    keeps them running (photon up).

    \b
    Examples:
      photon table observe dedup.py
      photon table observe dedup.py --once -o json
      photon table observe dedup.py --retire cluster
      photon table observe dedup.py --threads 16 --metrics 127.0.0.1:9464
    If an observer raises or exceeds its time limit, only its current cell fails, and is tried again; --once tries all
    failed cells again and lists those that still fail.
    Exit codes: 0 stopped by a signal, or nothing is left to do; 1 failed; 2 FILE has no observers; 3 with --once,
    observers of some cells fail.
    """
    from photon.config.stopping import stop_flag
    from photon.status.http import serve_metrics
    from photon.tables.observing import ObserverFailed
    from photon.tables.program import Program, tables_of

    if retire is not None:
        return _retire(file, retire, tables_of(file), out)
    program = Program(file)
    stop = stop_flag()
    if metrics is not None:
        serve_metrics(metrics, program.read)
    failed: Sequence[str] = ()
    if once:
        try:
            program.drain()
        except ObserverFailed as error:
            failed = error.cells
            for line in failed[:SHOWN]:
                say(line)
    else:
        say(f"observers of {file} run in {threads} threads")
        sys.stderr.flush()
        program.run(stop, threads=threads)
    counts = program.counts
    program.close()
    out.show(
        {"observers": program.observers, "counts": dict(counts), "failed": failed},
        f"observers {', '.join(program.observers)}: {many(counts['observed'], 'run')} committed, "
        f"{many(counts['conflicts'], 'conflict')}" + (f", {many(len(failed), 'cell')} failed" if failed else ""),
    )
    return ATTENTION if failed else DONE


def _retire(file: Path, observer: str, found: Sequence[Tables], out: Printed) -> int:
    """Stops keeping changes for an observer that no program defines any more. Raises UsageError."""
    from photon.tables.system import without_observer

    published = {name for each in found for names in each.system.look().observed.values() for name in names}
    if observer not in published:
        raise UsageError(f"--retire {observer}: no such observer; known are {', '.join(sorted(published)) or 'none'}")
    if observer in {each.name for tables in found for each in tables.observers}:
        raise UsageError(f"--retire {observer}: {file} defines it; remove it there first")
    for tables in found:
        tables.system.change(lambda state: without_observer(state, observer))
        tables.close()
    out.show({"retired": observer}, f"{observer} is retired")
    return DONE


# -- photon status oracle --------------------------------------------------------------------------------------------
ORACLE = (
    Column("replica"),
    Column("oracle", lambda row: "leads" if row["leads"] else "" if row["answers"] else "does not answer", str),
    Column(">timestamps"), Column(">requests"), Column(">entries"),
)  # fmt: skip


def oracle(at: Deployed) -> int:
    """Implements ``photon status oracle``. Exit code 3: no replica leads the oracle, or a replica does not answer."""
    from photon.fleet.look import look_at

    settings = at.with_registry
    if settings.tables is None or not settings.tables.thrift:
        raise UsageError("tables.thrift: is not in the configuration: SQLite keeps its timestamps in its file")
    look, rows = asyncio.run(look_at(settings, "", ["registry"], at.tls)), list[dict[str, Any]]()
    for each in look.heard:
        row = {"replica": each.process.name, "answers": each.up}
        row["leads"] = bool(look.now.of(each.process, "photon_oracle_leader"))
        for name in ("timestamps", "requests", "entries"):
            row[name] = int(look.now.of(each.process, f"photon_oracle_{name}_total") or 0)
        rows.append(row)

    at.part(Part("replicas", rows, ORACLE))
    return DONE if all(row["answers"] for row in rows) and any(row["leads"] for row in rows) else ATTENTION
