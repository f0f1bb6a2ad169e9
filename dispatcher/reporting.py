"""Troubles that last are said when they begin and when they are over, not at every attempt. Pure but for the log."""

from __future__ import annotations

from typing import Any

CALM_S = 2.0
"""Over is what has not happened for so long: with one shard of many without a leader every other batch goes well."""


class Troubles:
    """``log``: a structlog logger. Times: monotonic seconds."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._since: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def met(self, what: str, problem: str, now: float) -> None:
        """``what`` is in trouble: said once."""
        if what not in self._since:
            self._since[what] = now
            self._log.warning(f"{what}: trouble", problem=problem.replace("\n", " "))
        self._last[what] = now

    def well(self, what: str, now: float) -> None:
        """``what`` did its work."""
        if what in self._since and now - self._last[what] >= CALM_S:
            self._log.info(f"{what}: well again", after_s=round(now - self._since.pop(what), 1))
