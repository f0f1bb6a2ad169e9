"""Writes a dispatcher's log lines. Pure except for that.

Lasting problems are logged when they begin and end, not at every attempt. Of a batch's rejected or late events, only
the first is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from photon.batch.events import Events
from photon.config.clock import NS_PER_S
from photon.dispatcher.events import Retimed
from photon.joiner.api import JoinAnswers, Outcome

# A trouble is over after this time without it: if one of many shards has no leader, every other batch succeeds.
CALM_S = 2.0
LASTS_S = 10.0  # shorter troubles are not reported: when a dispatcher starts, other parts may be starting too
RETIMED_S = 60.0  # least time between lines about ids with two event times
_GIVEN_UP = {Outcome.REJECTED: "events rejected", Outcome.LATE: "events come late"}


def tell_given_up(log: Any, events: Events, answers: JoinAnswers) -> None:
    """Logs one line for a batch's rejected events and one for its late ones, each naming the first."""
    outcomes = answers.verdicts.outcomes.tobytes()
    for outcome, what in _GIVEN_UP.items():
        if outcome in outcomes:
            row = outcomes.index(outcome)
            event = events.row(row)
            log.info(
                what,
                event_id=event.event_id,
                log=event.file.path,
                offset=event.offset,
                reason=answers.verdicts.reasons.get(row),
                events=outcomes.count(outcome),
            )


def tell_retimed(log: Any, found: Retimed, lines: int) -> None:
    """Warns that lines with the same id have different event times. ``lines``: number of such lines so far."""
    log.warning(
        "an id occurred with two event times: it counts as one event, joined once; photon explain shows its record",
        event_id=found.event_id,
        log=found.file,
        offset=found.offset,
        event_time=_utc(found.event_time_ns),
        registered_with=_utc(found.registered_ns),
        registered_by=found.datacentre,
        verdict=found.kind.name.lower(),
        token=f"{found.token:016x}" if found.token else None,
        lines=lines,
    )


def _utc(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


@dataclass
class _Trouble:
    since: float
    last: float
    said: bool = False
    well: bool = False  # True if something succeeded since the trouble last occurred


class Troubles:
    """Logs each lasting problem once. ``log``: a structlog logger. Times: monotonic seconds."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._met: dict[str, _Trouble] = {}

    def met(self, what: str, problem: str, now: float) -> None:
        """Notes a problem with ``what``. It is logged once it has lasted for some time."""
        trouble = self._met.get(what)
        if trouble is None or (trouble.well and not trouble.said and now - trouble.last >= CALM_S):
            trouble = self._met[what] = _Trouble(now, now)
        trouble.last, trouble.well = now, False
        if not trouble.said and now - trouble.since >= LASTS_S:
            trouble.said = True
            self._log.warning(f"{what}: problem", problem=problem.replace("\n", " "))

    def well(self, what: str, now: float) -> None:
        trouble = self._met.get(what)
        if trouble is None:
            return
        trouble.well = True
        if now - trouble.last >= CALM_S:
            del self._met[what]
            if trouble.said:
                self._log.info(f"{what}: problem solved", after_s=round(now - trouble.since, 1))
