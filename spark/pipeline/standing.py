"""Reads the decided and waiting events of a slot's join, even while its driver is running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from photon.config.disk import Disk
from photon.dispatcher.ledger import LedgerLine, total_of
from photon.spark.pipeline.journal import Commit, Journal, JournalDamaged, folded
from photon.spark.pipeline.reading import read_waiting
from photon.spark.pipeline.waiting import WaitingFile

T = TypeVar("T")


def read_standing(
    disk: Disk, directory: Path, of: Callable[[WaitingFile, Sequence[int]], T] | None = None
) -> tuple[Commit, list[T]] | None:
    """Returns the newest commit, and the result of ``of`` for each file with waiting rows; ``None`` if there is no
    commit. ``directory``: the journal's directory.

    Raises JournalDamaged, OSError.
    """
    journal, before = Journal(disk, directory), None
    while True:
        newest = journal.newest()
        try:
            if not (commits := journal.commits()):
                return None
            commit = folded(commits)
            if of is None:
                return commit, []
            return commit, [of(read_waiting(journal, name), rows) for name, rows in commit.waiting.items()]
        except JournalDamaged:
            if newest == before:
                raise
            before = newest  # the driver has removed files that newer commits do not need


def waiting_in(commit: Commit) -> int:
    """Returns the number of waiting events."""
    return sum(map(len, commit.waiting.values()))


def ledger_of(counts: Mapping[str, int], waiting: int) -> LedgerLine:
    """Returns the ledger over all batches. ``counts``: a commit's counts; ``waiting``: waiting events after it."""
    named = {
        "read": counts.get("events", 0) + counts.get("unreadable", 0),
        "rejected": counts.get("rejected", 0) + counts.get("unreadable", 0),
        "duplicate": counts.get("own", 0) + counts.get("repeats", 0),
        "pending": waiting,
    }
    return total_of({**counts, **named})
