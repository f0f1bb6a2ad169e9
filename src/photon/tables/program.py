"""Runs the observers in a program's file in this process, and maintains its stores: removes old versions, and watches
their state."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from photon.config.errors import UsageError
from photon.config.metrics.readings import Readings
from photon.config.metrics.table import TABLES, Kind
from photon.config.python_file import load_python
from photon.tables.collecting import Collector
from photon.tables.observing import ObserverFailed, Worker
from photon.tables.standing import Watch
from photon.tables.tables import Tables

# Metric -> its name among ``Tables.counts``
COUNTED = {
    metric.name: metric.name.removeprefix("photon_tables_").removesuffix("_total")
    for metric in TABLES
    if metric.kind is Kind.COUNTER
}


def tables_of(file: Path) -> list[Tables]:
    """Runs the file, and returns the ``Tables`` objects that it defines. If that fails, raises UsageError, with the
    place in one line."""
    found: list[Tables] = []
    for each in vars(load_python(file, "observers")).values():
        if isinstance(each, Tables) and each not in found:
            found.append(each)
    return found


class Program:
    def __init__(self, file: Path) -> None:
        """Loads the file. Raises UsageError, and errors of opening its tables."""
        self.file = file
        self.tables: Sequence[Tables] = [each for each in tables_of(file) if each.observers]
        if not self.tables:
            raise UsageError(
                f"{file}: has no observers; decorate functions with @observer(tables, table=..., column=...)"
            )
        self._watches = [Watch(each.around, each.system) for each in self.tables]

    @property
    def observers(self) -> list[str]:
        return sorted(each.name for tables in self.tables for each in tables.observers)

    @property
    def counts(self) -> Counter[str]:
        return sum((tables.counts for tables in self.tables), start=Counter())

    def drain(self) -> None:
        """Runs until no work is left. Raises like ``Worker.publish`` and ``Worker.drain``, but ObserverFailed only at
        the end, for all tables."""
        failed: list[str] = []
        for tables in self.tables:
            worker = Worker(tables)
            worker.publish()
            try:
                worker.drain()
            except ObserverFailed as error:
                failed += error.cells
        if failed:
            raise ObserverFailed(failed)

    def run(self, stop: threading.Event, *, threads: int) -> None:
        """Runs until ``stop`` is set; a failure also sets it. Raises StoreFailed if the observers cannot be
        published."""
        failed: list[Exception] = []

        def running(work: Callable[[threading.Event], None]) -> None:
            try:
                work(stop)
            except Exception as error:
                failed.append(error)
                stop.set()

        works: list[Callable[[threading.Event], None]] = []
        for tables, watch in zip(self.tables, self._watches, strict=True):
            worker = Worker(tables)
            works += [lambda stop, worker=worker: worker.run(stop, threads=threads), watch.run]  # type: ignore[misc]
            works.append(Collector(tables.around, tables.resolver, tables.system).run)
        at_work = [threading.Thread(target=running, args=(work,), name="observers") for work in works]
        for each in at_work:
            each.start()
        for each in at_work:
            while each.is_alive():  # with a timeout, so that signals are handled
                each.join(0.2)
        if failed:
            raise failed[0]

    def read(self, into: Readings) -> None:
        counts = self.counts
        for metric, name in COUNTED.items():
            into.put(metric, counts[name])
        standing = [each.standing for each in self._watches]
        into.put_all(
            "photon_tables",
            {
                "store_up": all(not each.problem for each in standing),
                "dirty_cells": sum(each.dirty for each in standing),
                "oldest_dirty_seconds": max(watch.oldest_dirty_s() for watch in self._watches),
                "safe_point_age_seconds": max(watch.safe_point_age_s() for watch in self._watches),
            },
        )

    def details(self) -> dict[str, Any]:
        """Returns the details for the status page."""
        problems = [each.standing.problem for each in self._watches if each.standing.problem]
        return {"observers": self.observers, "file": self.file.name, "problem": "; ".join(problems)}

    def close(self) -> None:
        for tables in self.tables:
            tables.close()
