"""``photon status top``: shows the activity of a deployment's processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from photon.cli import tables
from photon.cli.errors import DONE, FAILED
from photon.cli.looking import again, asking
from photon.config.errors import UsageError
from photon.config.words import NONE, delay, duration, number, rate, size
from photon.fleet.parts import Column, Part, bad_if

if TYPE_CHECKING:
    from photon.cli.heads import Deployed

BAR = 10  # bar length for one whole core, in characters

Look = Callable[[], dict[str, Any]]


def top(
    at: Deployed,
    name: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    watch: bool = False,
    every: float = 2.0,
) -> int:
    """``photon status top [NAME]``: shows the activity of processes, slots, logs or shards over one interval, or
    repeatedly with ``watch``. ``limit``: number of lines; `None` means as many as fit. -o json has all four views on
    one line each time. Exit code 1: no process answers."""
    from photon.status.view import busiest

    view = name or "processes"
    if view not in COLUMNS:
        raise UsageError(f"unknown view {view!r}; there are: {', '.join(COLUMNS)}")
    sort = sort or ("cpu" if view == "processes" else "rate")
    with asking(at) as (_, ask):
        before = ask()

        def look() -> dict[str, Any]:
            nonlocal before
            then, before = before, ask()
            return busiest(then, before)

        time.sleep(every)
        if at.json or not watch or not sys.stdout.isatty():
            return _lines(at, look, view, sort, limit, every if watch else None)
        return _live(look, view, sort, limit, every)


def _lines(at: Deployed, look: Look, view: str, sort: str, limit: int | None, every: float | None) -> int:
    def shown() -> dict[str, Any]:
        said = look()
        part = rows_of(said, view, sort, limit)
        at.show({**said, view: part.rows}, part)
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
            live.update(tables.table_of(rows_of(look(), view, sort, room)), refresh=True)

        again(drawn, every)
    return DONE


def rows_of(said: dict[str, Any], view: str, sort: str, limit: int | None) -> Part:
    from photon.status.view import ordered

    none = "no log is behind" if view == "logs" else "nothing answers"
    return Part(view, ordered(said[view], view, sort)[:limit], COLUMNS[view], none, bad_if(_down))


def _down(row: Mapping[str, Any]) -> bool:
    return row.get("up") is False


def _cores(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _each_s(value: float | None) -> str:
    return NONE if value is None else f"{size(value)}/s"


def _bar(row: dict[str, Any]) -> str:
    return "#" * min(round((row["cpu"] or 0.0) * BAR), 2 * BAR)


COLUMNS: dict[str, tuple[Column, ...]] = {
    "processes": (
        Column("datacentre"), Column("service"), Column("process"), Column(">cpu", "cpu", _cores),
        Column("", _bar, str), Column(">memory", "memory_bytes", size), Column(">rate", "rate_per_s", rate),
        Column(">files", "open_files", number), Column(">up for", "uptime_s", duration),
        Column("state", lambda row: "up" if row["up"] else f"down: {row['problem']}"),
    ),
    "slots": (
        Column("datacentre"), Column("slot"), Column(">answers", "answers_per_s", rate),
        Column(">joined", "joined_per_s", rate), Column(">open ids", "open_ids", number),
        Column(">open", "open_bytes", size), Column(">redo log", "redo_log_bytes", size),
        Column(">published", "published_per_s", _each_s), Column(">not cleared", "uncleared_bytes", size),
    ),
    "logs": (
        Column("datacentre"), Column("dispatcher"), Column("log"), Column(">behind", "bytes", size),
        Column(">since", "seconds", duration),
    ),
    "shards": (
        Column(">shard"), Column("leader"), Column(">ids", "ids", number), Column(">memory", "bytes", size),
        Column(">registered", "ids_per_s", rate), Column(">entries", "entries_per_s", rate),
        Column(">queued", "queued_ids", number), Column(">commit p50", "commit_p50_s", delay),
        Column(">p99", "commit_p99_s", delay),
    ),
}  # fmt: skip
