"""What a run found: the verdict, and its figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from photon.lab.chaos.figures import Back, Latency, Spread
from photon.lab.chaos.resources import Use

NOTHING = Spread(0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Report:
    """One run. ``problems`` empty: every event exactly once, everything healed and settled."""

    scenario: str
    seed: int
    faults: int = 0
    problems: list[str] = field(default_factory=list)
    events: int = 0
    """Foreign events that must have one verdict."""
    seconds: float = 0.0
    """From the first line to the settled end."""
    settle_s: float = 0.0
    """From the last line and the last heal until all was settled."""
    latency: Latency = field(default_factory=lambda: Latency(NOTHING, NOTHING, NOTHING, {}, 0))
    backs: list[Back] = field(default_factory=list)
    wasted: int = 0
    """Joins for nothing, in all."""
    uses: list[Use] = field(default_factory=list)
    restarts: int = 0
    load_before: float = 0.0
    load_after: float = 0.0
    """Of the machine, over a minute."""
    history: str = ""
    verified: str = ""
    """With what."""

    @property
    def good(self) -> bool:
        """Nothing lost, doubled, invented or wrong."""
        return not self.problems

    @property
    def growing(self) -> list[Use]:
        """Processes that take more and more."""
        return [use for use in self.uses if use.growing]
