"""Orders to repeat decisions on a time range of a datacentre's logs, for its dispatcher or its join on Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of
from photon.adapters.logs.log_finder import LogFound, find_logs, holding
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.replay import requests
from photon.dispatcher.replay.requests import Part, Preview, Progress, Request, Step, matches
from photon.objects.paths import placed
from photon.spark.pipeline.journal import Commit, Ended, Journal, LogAt, Reread, RereadAt, journal_of
from photon.spark.pipeline.standing import read_standing


class Replays(Protocol):
    @property
    def who(self) -> str:
        """The name of the process that carries out the orders."""
        ...

    def preview(self, from_ns: int, to_ns: int, pattern: str) -> list[Preview]:
        """Returns what would be read again; changes nothing. Like the others, raises PhotonError, OSError."""
        ...

    def ask(self, from_ns: int, to_ns: int, pattern: str) -> int:
        """Places an order; returns its number."""
        ...

    def cancel(self, number: int) -> bool:
        """Cancels an order. True if it existed and was not done."""
        ...

    def progress(self) -> list[Progress]:
        """Returns the progress of all orders, including finished ones."""
        ...


def replays_of(settings: Settings, base: Path, datacentre: str) -> Replays:
    """Returns the replays of a datacentre's dispatcher or join on Spark. Raises UsageError, AdapterError."""
    pipeline = settings.datacentre[datacentre]
    adapter = adapter_of(settings, pipeline.join, base)
    logs = _Logs(placed(base, pipeline.foreign), settings.join[pipeline.join].foreign_files, adapter)
    if pipeline.on_spark:
        journal = Journal(RealDisk(), journal_of(base / pipeline.state, pipeline.spark_slot(datacentre)))
        return _OfSpark(f"the join of {datacentre} on Spark", journal, logs)
    return _OfDispatcher(f"the dispatcher of {datacentre}", base / pipeline.state / STATE_NAME, logs)


@dataclass(frozen=True, slots=True)
class _Logs:
    directory: Path
    files: Sequence[str]
    adapter: Adapter

    def find(self) -> Mapping[str, LogFound]:
        adapter = self.adapter
        return find_logs(
            self.directory, self.files, has_header=adapter.foreign_has_header,
            framing=adapter.foreign_framing, links=adapter.foreign_links,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _OfDispatcher:
    who: str
    state: Path
    logs: _Logs

    def preview(self, from_ns: int, to_ns: int, pattern: str) -> list[Preview]:
        return requests.preview(self.state, from_ns, to_ns, pattern, self.logs.find)

    def ask(self, from_ns: int, to_ns: int, pattern: str) -> int:
        return requests.ask(self.state, from_ns, to_ns, pattern, time.time_ns())

    def cancel(self, number: int) -> bool:
        return requests.cancel(self.state, number, time.time_ns())

    def progress(self) -> list[Progress]:
        return requests.progress(self.state)


@dataclass(frozen=True, slots=True)
class _OfSpark:
    who: str
    journal: Journal
    logs: _Logs

    def _standing(self) -> Commit | None:
        if not self.journal.disk.exists(self.journal.directory / "join"):
            raise PhotonError(f"{self.journal.directory}: no join on Spark has begun here; start it, then try again")
        found: tuple[Commit, list[None]] | None = read_standing(self.journal.disk, self.journal.directory)
        return None if found is None else found[0]

    @staticmethod
    def _matching(commit: Commit | None, pattern: str) -> list[LogAt]:
        known = [] if commit is None else [log for log in commit.logs if matches(pattern, log.path)]
        return sorted(known, key=lambda log: (log.path, log.identity))

    def preview(self, from_ns: int, to_ns: int, pattern: str) -> list[Preview]:
        if not (known := self._matching(self._standing(), pattern)):
            return []
        found = self.logs.find()
        return [Preview(log.path, log.offset - log.data_start, bool(holding(found, log.identity))) for log in known]

    def ask(self, from_ns: int, to_ns: int, pattern: str) -> int:
        self._standing()
        if sum(not ended for ended in self.journal.rereads().values()) >= requests.WAITING_MAX:
            raise PhotonError(f"{requests.WAITING_MAX} replays are waiting already; let them end, or cancel some")
        return self.journal.ask_reread(Reread(asked_ns=time.time_ns(), from_ns=from_ns, to_ns=to_ns, pattern=pattern))

    def cancel(self, number: int) -> bool:
        if self.journal.rereads().get(number, True):
            return False
        return self.journal.end_reread(number, Ended(at_ns=time.time_ns(), cancelled=True)).cancelled

    def progress(self) -> list[Progress]:
        commit = self._standing()
        at = RereadAt() if commit is None else commit.reread
        found = []
        for number in self.journal.rereads():
            wanted, ended = self.journal.reread(number), self.journal.ended(number)
            if wanted.ids:
                continue  # ordered by the driver
            own = at if at.number == number else RereadAt(number)
            step = Step.RUNNING if at.number == number else Step.ASKED
            if ended is not None:
                step = Step.CANCELLED if ended.cancelled else Step.DONE
            known = [] if step is Step.ASKED else self._matching(commit, wanted.pattern)
            parts = [_part(log, own, ended) for log in known]
            request = Request(
                number,
                wanted.from_ns,
                wanted.to_ns,
                wanted.pattern,
                wanted.asked_ns,
                step,
                ended.at_ns if ended else 0,
            )
            events, there = (own.events, own.known) if ended is None else (ended.events, ended.known)
            found.append(Progress(request, parts, events, there))
        return found


def _part(log: LogAt, at: RereadAt, ended: Ended | None) -> Part:
    is_done = log.identity < at.identity or (log.identity == at.identity and at.offset is None)
    if ended is not None and not ended.cancelled:
        is_done = log.path not in ended.gone
    reached = log.offset if is_done else log.data_start
    if log.identity == at.identity and at.offset is not None:
        reached = at.offset
    is_gone = ended is not None and log.path in ended.gone
    step = Step.UNREAD if is_gone else Step.DONE if is_done else Step.RUNNING
    return Part(log.identity, log.path, log.data_start, reached, log.offset, step, 0, 0)
