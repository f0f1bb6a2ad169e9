"""Troubles that last are said once, and once more when they are over; not at every attempt. Pure but for the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CALM_S = 2.0
"""Over is what has not happened for so long: with one shard of many without a leader every other batch goes well."""
LASTS_S = 10.0
"""What is over sooner is not worth a line: at its start a dispatcher meets parts that are starting too."""


@dataclass
class _Trouble:
    since: float
    last: float
    said: bool = False
    well: bool = False
    """Something went well since it was met last."""


class Troubles:
    """``log``: a structlog logger. Times: monotonic seconds."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._met: dict[str, _Trouble] = {}

    def met(self, what: str, problem: str, now: float) -> None:
        """``what`` is in trouble: said once, when it has lasted."""
        trouble = self._met.get(what)
        if trouble is None or (trouble.well and not trouble.said and now - trouble.last >= CALM_S):
            trouble = self._met[what] = _Trouble(now, now)
        trouble.last, trouble.well = now, False
        if not trouble.said and now - trouble.since >= LASTS_S:
            trouble.said = True
            self._log.warning(f"{what}: trouble", problem=problem.replace("\n", " "))

    def well(self, what: str, now: float) -> None:
        """``what`` did its work."""
        trouble = self._met.get(what)
        if trouble is None:
            return
        trouble.well = True
        if now - trouble.last >= CALM_S:
            del self._met[what]
            if trouble.said:
                self._log.info(f"{what}: well again", after_s=round(now - trouble.since, 1))
