"""``photon top``: what the processes of a deployment are busy with, live."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file
from photon.cli.again import again
from photon.cli.errors import DONE, FAILED

if TYPE_CHECKING:
    from rich.table import Table

    from photon.config.settings import Settings

VIEWS = ("processes", "slots", "logs", "shards")
SORTS = ("cpu", "memory", "rate", "name")
NONE = "-"
BAR = 10
"""Characters of a whole core."""

Look = Callable[[], dict[str, Any]]


@click.command()
@deployment_file.config()
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--datacentre", metavar="NAME", help="Of this one only; else of all.")
@click.option("--view", type=click.Choice(VIEWS), default="processes", show_default=True, help="What the lines are.")
@click.option("--sort", type=click.Choice(SORTS), default=None,
              help="The most first; default: cpu for processes, else rate.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="So many lines; default: what fits.")
@click.option("--once", is_flag=True, help="One look, over one period, and end.")
@click.option("--every", type=click.FloatRange(min=0.2), default=2.0, show_default=True, metavar="SECONDS",
              help="From one look to the next.")  # fmt: skip
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def top(
    config: Path,
    overrides: tuple[str, ...],
    datacentre: str | None,
    view: str,
    sort: str | None,
    limit: int | None,
    once: bool,
    every: float,
    output_format: str,
) -> int:
    """Show what processes, slots, logs or shards are busy with, until Ctrl-C.

    cpu is in cores, over the last period. A process's rate is what it deals with in a second: events read
    (dispatchers of one state say their common count), events answered (joiners), events indexed and keys looked up
    (event stores, cache nodes), ids registered (the registry's leaders). Logs are those that are behind. With -o json
    a line is written each time, with all four views.

    \b
    Examples:
      photon top --config photon.toml
      photon top --config photon.toml --view shards --sort memory
      photon top --config photon.toml --once -o json
    Exit codes: 0 done, 1 nothing answers, 2 wrong usage.
    """
    with _looking(config, overrides, datacentre) as look:
        look()  # rates need two
        time.sleep(every)
        if once or output_format == "json":
            return _lines(look, view, _sort(view, sort), limit, every, output_format, once=once)
        return _live(look, view, _sort(view, sort), limit, every)


def _sort(view: str, sort: str | None) -> str:
    return sort or ("cpu" if view == "processes" else "rate")


def _lines(
    look: Look, view: str, sort: str, limit: int | None, every: float, output_format: str, *, once: bool
) -> int:
    from photon.cli import tables
    from photon.cli.registry.common import print_json
    from photon.status.top import ordered

    def shown() -> dict[str, Any]:
        said = look()
        if output_format == "json":
            print_json({**said, view: ordered(said[view], view, sort)[:limit]})
        else:
            tables.show(table(said, view, sort, limit))
        return said

    said = shown() if once else again(shown, every)
    return DONE if said is None or any(row["up"] for row in said["processes"]) else FAILED


def _live(look: Look, view: str, sort: str, limit: int | None, every: float) -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        return _lines(look, view, sort, limit, every, "table", once=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def drawn() -> None:
            room = limit or max(console.size.height - 3, 1)
            live.update(table(look(), view, sort, room), refresh=True)

        again(drawn, every)
    return DONE


def table(said: dict[str, Any], view: str, sort: str, limit: int | None) -> Table:
    """One view for people."""
    from rich.table import Table
    from rich.text import Text

    from photon.status.top import ordered

    shown = Table(box=None, pad_edge=False, title_justify="left")
    columns = COLUMNS[view]
    for name, _ in columns:
        shown.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    for row in ordered(said[view], view, sort)[:limit]:
        down = view == "processes" and not row["up"]
        shown.add_row(*(Text(show(row)) for _, show in columns), style="red" if down else "")
    if not said[view]:
        shown.add_row(Text("no log is behind" if view == "logs" else "nothing answers"))
    return shown


def _number(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: NONE if row[field] is None else f"{row[field]:,.0f}"


def _per_s(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: NONE if row[field] is None else f"{row[field]:,.0f}/s"


def _bytes(field: str, unit: str = "") -> Callable[[dict[str, Any]], str]:
    from photon.embedded.status import size

    return lambda row: NONE if row[field] is None else size(row[field]) + unit


def _seconds(field: str) -> Callable[[dict[str, Any]], str]:
    from photon.embedded.status import duration

    return lambda row: NONE if row[field] is None else duration(row[field])


def _ms(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: NONE if row[field] is None else f"{row[field] * 1000:,.1f} ms"


def _text(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row[field] or NONE)


def _cpu(row: dict[str, Any]) -> str:
    return NONE if row["cpu"] is None else f"{row['cpu']:.2f}"


def _bar(row: dict[str, Any]) -> str:
    return "#" * min(round((row["cpu"] or 0.0) * BAR), 2 * BAR)


def _state(row: dict[str, Any]) -> str:
    return "up" if row["up"] else f"down: {row['problem']}"


LEFT = {"datacentre", "service", "process", "slot", "dispatcher", "log", "leader", "", "state"}
COLUMNS: dict[str, list[tuple[str, Callable[[dict[str, Any]], str]]]] = {
    "processes": [
        ("datacentre", _text("datacentre")), ("service", _text("service")), ("process", _text("process")),
        ("cpu", _cpu), ("", _bar), ("memory", _bytes("memory_bytes")), ("rate", _per_s("rate_per_s")),
        ("files", _number("open_files")), ("up for", _seconds("uptime_s")), ("state", _state),
    ],
    "slots": [
        ("datacentre", _text("datacentre")), ("slot", _text("slot")), ("answers", _per_s("answers_per_s")),
        ("joined", _per_s("joined_per_s")), ("open ids", _number("open_ids")), ("open", _bytes("open_bytes")),
        ("redo log", _bytes("redo_log_bytes")), ("published", _bytes("published_per_s", "/s")),
        ("not cleared", _bytes("uncleared_bytes")),
    ],
    "logs": [
        ("datacentre", _text("datacentre")), ("dispatcher", _text("dispatcher")), ("log", _text("log")),
        ("behind", _bytes("bytes")), ("since", _seconds("seconds")),
    ],
    "shards": [
        ("shard", _number("shard")), ("leader", _text("leader")), ("ids", _number("ids")),
        ("memory", _bytes("bytes")), ("registered", _per_s("ids_per_s")), ("entries", _per_s("entries_per_s")),
        ("queued", _number("queued_ids")), ("commit p50", _ms("commit_p50_s")), ("p99", _ms("commit_p99_s")),
    ],
}  # fmt: skip


@contextmanager
def _looking(config: Path, overrides: tuple[str, ...], datacentre: str | None) -> Iterator[Look]:
    from photon.config.loader import load
    from photon.fleet.access import pipeline_named

    settings = load(config, environment=os.environ, flags=overrides)
    names = [pipeline_named(settings, datacentre)[0]] if datacentre else sorted(settings.datacentre)
    if not names:
        pipeline_named(settings, None)  # says what is missing
    with _gathering(settings, config.parent, names) as look:
        yield look


@contextmanager
def _gathering(settings: Settings, base: Path, names: list[str]) -> Iterator[Look]:
    from photon.config.tls import OPERATOR
    from photon.fleet.access import tls_of
    from photon.fleet.asking import Asker
    from photon.status.top import Top

    tls = tls_of(settings, base, OPERATOR)
    asker, view = Asker(settings, names, tls, base), Top()

    async def look() -> dict[str, Any]:
        heard = await asker.look(time.monotonic())
        return {"at_s": time.time(), **view.update(heard, time.monotonic())}

    with asyncio.Runner() as runner:
        try:
            yield lambda: runner.run(look())
        finally:
            runner.run(asker.close())
