"""What may be done to a deployment, and what a thing must offer to have it done to it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from photon.config.errors import PhotonError, UsageError
from photon.lab.wan.links import Change, DirectionNow

LEADER = "leader"
"""As a target: the replica that leads the registry's first shard when the fault begins."""


class Do(enum.StrEnum):
    """The faults. Each ends by itself after its time, or when it is healed."""

    KILL = "kill"
    """kill -9; with a time: down for that long, else restarted at once by its supervisor."""
    PAUSE = "pause"
    """SIGSTOP, later SIGCONT."""
    CUT = "cut"
    """Between two regions, or one and all others: bytes are dropped, connections reset or refused."""
    LOSS = "loss"
    """Connections between two regions are reset again and again, as where packets are lost for long."""
    DELAY = "delay"
    """More time one way between two regions."""
    DISK = "disk"
    """The file system of a process's state is full."""
    CLOCK = "clock"
    """A process starts again with a wrong wall clock."""
    TRUNCATE = "truncate"
    """The end of a datacentre's newest event log is missing for a while, as after a crash of its writer's machine."""
    AWAY = "away"
    """A whole datacentre ends with kill -9 and nothing arrives there; with its state, or without."""
    RESTART = "restart"
    """Processes are ended gracefully and started again, one after the other: a rolling upgrade."""
    RESHARD = "reshard"
    """The registry's number of shards is changed, which is no fault but meets all others."""


NEEDS_TWO_REGIONS = frozenset({Do.LOSS, Do.DELAY})
INSTANT = frozenset({Do.RESTART, Do.RESHARD})
"""Take the time that they need; ``for`` has no meaning with them."""


class ChaosFailed(PhotonError):
    """A fault cannot be done or healed, or the run cannot go on. One line."""


class WrongScenario(UsageError):
    """A scenario file, or a target that there is not. One line: what, where."""


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float
    """Seconds from the run's beginning."""
    for_s: float
    """0: what happens is over at once."""
    do: Do
    target: tuple[str, ...]
    """Names of processes, of a datacentre (away, truncate) or of regions (cut, loss, delay); none: reshard."""
    options: Mapping[str, str | float | bool] = field(default_factory=dict)
    """``fault``, ``both`` of a cut; ``delay`` in seconds, one way; ``skew`` in seconds; ``state`` of away; ``shards``
    of reshard."""

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s

    def words(self) -> str:
        """The fault in words: ``pause joiner east-1 for 5 s``."""
        more = ", ".join(f"{key} {value}" for key, value in self.options.items())
        lasts = f" for {self.for_s:g} s" if self.for_s else ""
        return f"{self.do} {', '.join(self.target)}".rstrip() + lasts + (f" ({more})" if more else "")


@dataclass(frozen=True, slots=True)
class ProcessNow:
    up: bool
    """Whether its supervisor finds it healthy."""
    pid: int | None
    detail: str = ""
    restarts: int = 0
    skewed: bool = False
    """It was given a wrong wall clock."""


class Target(Protocol):
    """A running deployment. Every method raises ChaosFailed, and may be called again after a failure."""

    @property
    def able(self) -> frozenset[Do]:
        """The faults that are possible here."""

    @property
    def fillable(self) -> Sequence[str]:
        """Processes whose file system may be filled."""

    async def processes(self) -> Mapping[str, ProcessNow]:
        """All, by name, in the order of their start."""

    async def kill(self, names: Sequence[str], *, hold: bool) -> None:
        """kill -9; ``hold``: they stay down until ``release``."""

    async def release(self, names: Sequence[str]) -> None:
        """Those that are held down start again."""

    async def pause(self, names: Sequence[str]) -> None:
        """They stand still."""

    async def resume(self, names: Sequence[str]) -> None:
        """They go on."""

    async def restart(self, name: str) -> None:
        """It is ended gracefully and started again."""

    async def directions(self) -> Sequence[DirectionNow]:
        """How bytes travel between regions now; none where no proxy stands between them."""

    async def change(self, changes: Sequence[Change]) -> None:
        """Changes how they travel."""

    async def fill(self, name: str) -> None:
        """Takes all room of the file system that holds a process's state."""

    async def empty(self, name: str) -> None:
        """Gives it back."""

    async def skew(self, name: str, seconds: float | None) -> None:
        """Starts a process again with a wall clock that is wrong by so much; None: with a right one."""

    async def wipe(self, datacentre: str) -> None:
        """Deletes what the dispatcher and the event store of a datacentre that is down know. Slots stay: they alone
        may hold what nobody else has."""

    async def photon(self, arguments: Sequence[str]) -> str:
        """Runs ``photon ARGUMENTS --config FILE`` where the deployment file is; its standard output."""
