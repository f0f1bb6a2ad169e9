"""What each datacentre did while both were up, while one was down, and afterwards. Pure (paper, figures 9 and 12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Ledgers = Mapping[str, Mapping[str, int]]
"""Datacentre -> its totals."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Verdicts made in one stretch of the demo."""

    name: str
    seconds: float
    made: Mapping[str, int]
    """Datacentre -> clicks joined or called unmatched by it."""
    wasted: int
    """Joins that another datacentre had made meanwhile."""

    @property
    def total(self) -> int:
        """Verdicts made by all."""
        return sum(self.made.values())

    def share(self, datacentre: str) -> float:
        """Of all verdicts made, from 0 to 1."""
        return self.made[datacentre] / self.total if self.total else 0.0

    @property
    def wasted_share(self) -> float:
        """Of all verdicts made: how many more joins were done for nothing."""
        return self.wasted / self.total if self.total else 0.0


class Phases:
    """Cuts the totals of ledgers into phases."""

    def __init__(self, begun: Ledgers, at_s: float) -> None:
        self._before = begun
        self._at_s = at_s
        self.done: list[Phase] = []

    def end(self, name: str, now: Ledgers, at_s: float) -> None:
        """The phase that began with the last one's end is over."""
        before = self._before
        made = {dc: _made(ledger) - _made(before[dc]) for dc, ledger in now.items()}
        # What a killed dispatcher had counted and not committed is missing afterwards.
        wasted = sum(max(0, ledger["wasted"] - before[dc]["wasted"]) for dc, ledger in now.items())
        self.done.append(Phase(name, at_s - self._at_s, made, wasted))
        self._before, self._at_s = now, at_s


def _made(ledger: Mapping[str, int]) -> int:
    return ledger["joined"] + ledger["unmatched"]
