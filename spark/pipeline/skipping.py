"""Moves the log positions of a stopped join on Spark, by committing a batch that reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.slices import Reading, open_log
from photon.config.errors import PhotonError
from photon.dispatcher.skipping import Skip
from photon.spark.pipeline.journal import Commit, Decision, Journal, LogAt, Part, Plan, Result, folded
from photon.spark.pipeline.listing import LogLister, proof_at
from photon.spark.pipeline.planner import begun


class BatchUnfinished(PhotonError):
    """The newest plan is unfinished: some of its bytes may be decided by now."""


def positions_of(journal: Journal) -> list[LogPosition]:
    """Returns the position in each log. Raises JournalDamaged, OSError."""
    return [LogPosition(log.identity, log.path, log.offset, log.header) for log in _logs(_newest(journal)).values()]


def put_skips(
    journal: Journal, directory: Path, reading: Reading, skips: Sequence[Skip], now_ns: Callable[[], int]
) -> None:
    """Commits new log positions. The caller must hold the slot's lock. Raises BatchUnfinished, LogUnreadable,
    JournalDamaged, OSError."""
    newest = _newest(journal)
    number = -1 if newest is None else newest.number
    known = _logs(newest)
    there = {log.path: log for log in LogLister(directory, reading, lambda _: None, now_ns)(known).logs}
    logs = []
    for skip in skips:
        if (found := there.get(skip.log.position.path)) is None:
            continue  # just renamed or removed; its position stays
        log = known.get(found.identity) or begun(found, now_ns())
        if skip.to > log.offset:
            log = msgspec.structs.replace(log, offset=skip.to, header=found.header, ended=False)
            with closing(open_log(directory, found.path, reading)) as source:
                logs.append(msgspec.structs.replace(log, proof=proof_at(source, log)))
    plan = Plan(
        number=number + 1, incarnation=0, at_ns=now_ns(), first_read_ns=0, read_past_ns=0, parts=[Part([], [])]
    )
    before = Commit(number=number, logs=[], waiting={}, whole=True, counts={}) if newest is None else newest
    moved = {log.identity: log for log in logs}
    if journal.put_plan(plan) != plan:
        raise BatchUnfinished(
            f"{journal.directory}: batch {number + 1} is unfinished; let the join finish it, then skip"
        )
    # Files of an empty part, which show a start that readers have not seen this batch.
    journal.put_decision(plan.number, 0, Decision())
    journal.put_result(plan.number, 0, Result())
    journal.put_commit(
        msgspec.structs.replace(before, number=number + 1, logs=list((known | moved).values()), whole=True)
    )


def _newest(journal: Journal) -> Commit | None:
    commits = journal.commits()
    return folded(commits) if commits else None


def _logs(commit: Commit | None) -> dict[str, LogAt]:
    return {} if commit is None else {log.identity: log for log in commit.logs}
