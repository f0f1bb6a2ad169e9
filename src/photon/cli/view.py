"""Shows the progress of a join: on a terminal in place, elsewhere as lines of text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from photon.cli.looking import LiveView
from photon.config.words import duration, size
from photon.fleet.counters import VERDICTS
from photon.local_join.status import Status, line, missing, rates

if TYPE_CHECKING:
    from rich.table import Table

LINE_EVERY_S = 2.0  # seconds between two lines of text
WINDOW_S = 3.0  # period over which rates are computed


class ProgressView(LiveView):
    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__()
        self._quiet = quiet
        self._history: list[Status] = []
        self._last_line = -LINE_EVERY_S

    def show(self, status: Status) -> None:
        """Adds a status and shows the progress. Call it a few times per second."""
        self._history.append(status)
        while len(self._history) > 2 and status.at_s - self._history[0].at_s > WINDOW_S:
            self._history.pop(0)
        if self._quiet or self.draw(lambda: _table(self._history[0], status)):
            return
        if status.at_s - self._last_line >= LINE_EVERY_S:
            self._last_line = status.at_s
            print(line(self._history[0], status), file=sys.stderr, flush=True)  # noqa: T201


def _table(before: Status, now: Status) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    speed = rates(before, now)
    table = Table.grid(padding=(0, 2))
    for what, done, known in (
        ("foreign", now.foreign_read, now.foreign_known),
        ("primary", now.primary_read, now.primary_known),
    ):
        bar = ProgressBar(total=max(known, 1), completed=done, width=30)
        table.add_row(f"{what} logs", bar, f"{size(done)} of {size(known)}, lag {size(max(0, known - done))}")
    ledger = now.ledger
    shown = ", ".join(f"{ledger[name]:,} {name}" for name in VERDICTS if ledger[name] or name == "joined")
    table.add_row("verdicts", f"{speed.events:,.0f} a second", f"{shown}, {ledger['pending']:,} pending")
    if now.missing_logs:
        table.add_row("missing", "", missing(now))
    table.add_row("time", duration(now.at_s), f"until the backlog is done: {duration(speed.left_s)}")
    return table
