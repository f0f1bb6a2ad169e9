"""Activity of a deployment's processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from photon.cli.errors import DONE, FAILED
from photon.cli.looking import again, asking
from photon.config.errors import UsageError
from photon.config.words import NONE, delay, duration, number, rate, size

if TYPE_CHECKING:
    from rich.table import Table

    from photon.cli.heads import Deployed

BAR = 10
"""Characters for a whole core."""

Look = Callable[[], dict[str, Any]]


def top(
    at: Deployed,
    name: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    watch: bool = False,
    every: float = 2.0,
) -> int:
    """``photon status top [NAME]``: activity of processes, slots, logs or shards, over one period or, with ``watch``,
    repeatedly. ``limit``: `None` for as many lines as fit. With -o json all four views, a line each time. Exit code
    1: nothing answers."""
    from photon.status.top import Top

    view = name or "processes"
    if view not in COLUMNS:
        raise UsageError(f"{view}: cannot be looked at so; there are: {', '.join(COLUMNS)}")
    sort = sort or ("cpu" if view == "processes" else "rate")
    with asking(at) as (_, ask):
        view_of = Top()

        def look() -> dict[str, Any]:
            heard = ask()
            return {"at_s": time.time(), **view_of.update(heard, time.monotonic())}

        look()  # rates need two
        time.sleep(every)
        if at.json or not watch or not sys.stdout.isatty():
            return _lines(at, look, view, sort, limit, every if watch else None)
        return _live(look, view, sort, limit, every)


def _lines(at: Deployed, look: Look, view: str, sort: str, limit: int | None, every: float | None) -> int:
    from photon.cli import tables
    from photon.status.top import ordered

    def shown() -> dict[str, Any]:
        said = look()
        document = {**said, view: ordered(said[view], view, sort)[:limit]}
        at.show(document, lambda: tables.show(table(said, view, sort, limit)))
        return said

    said = shown() if every is None else again(shown, every)
    return DONE if said is None or any(row["up"] for row in said["processes"]) else FAILED


def _live(look: Look, view: str, sort: str, limit: int | None, every: float) -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def drawn() -> None:
            room = limit or max(console.size.height - 3, 1)
            live.update(table(look(), view, sort, room), refresh=True)

        again(drawn, every)
    return DONE


def table(said: dict[str, Any], view: str, sort: str, limit: int | None) -> Table:
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


def _of(field: str, words: Callable[[Any], str]) -> Callable[[dict[str, Any]], str]:
    return lambda row: words(row[field])


def _text(value: Any) -> str:
    return str(value or NONE)


def _cores(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _each_s(value: float | None) -> str:
    return NONE if value is None else f"{size(value)}/s"


def _bar(row: dict[str, Any]) -> str:
    return "#" * min(round((row["cpu"] or 0.0) * BAR), 2 * BAR)


def _state(row: dict[str, Any]) -> str:
    return "up" if row["up"] else f"down: {row['problem']}"


LEFT = {"datacentre", "service", "process", "slot", "dispatcher", "log", "leader", "", "state"}
COLUMNS: dict[str, list[tuple[str, Callable[[dict[str, Any]], str]]]] = {
    "processes": [
        ("datacentre", _of("datacentre", _text)), ("service", _of("service", _text)),
        ("process", _of("process", _text)), ("cpu", _of("cpu", _cores)), ("", _bar),
        ("memory", _of("memory_bytes", size)), ("rate", _of("rate_per_s", rate)),
        ("files", _of("open_files", number)), ("up for", _of("uptime_s", duration)), ("state", _state),
    ],
    "slots": [
        ("datacentre", _of("datacentre", _text)), ("slot", _of("slot", _text)),
        ("answers", _of("answers_per_s", rate)), ("joined", _of("joined_per_s", rate)),
        ("open ids", _of("open_ids", number)), ("open", _of("open_bytes", size)),
        ("redo log", _of("redo_log_bytes", size)), ("published", _of("published_per_s", _each_s)),
        ("not cleared", _of("uncleared_bytes", size)),
    ],
    "logs": [
        ("datacentre", _of("datacentre", _text)), ("dispatcher", _of("dispatcher", _text)),
        ("log", _of("log", _text)), ("behind", _of("bytes", size)), ("since", _of("seconds", duration)),
    ],
    "shards": [
        ("shard", _of("shard", number)), ("leader", _of("leader", _text)), ("ids", _of("ids", number)),
        ("memory", _of("bytes", size)), ("registered", _of("ids_per_s", rate)),
        ("entries", _of("entries_per_s", rate)), ("queued", _of("queued_ids", number)),
        ("commit p50", _of("commit_p50_s", delay)), ("p99", _of("commit_p99_s", delay)),
    ],
}  # fmt: skip
