"""The faults for a deployment, and the interface that a target must offer."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from photon.config.errors import PhotonError, UsageError
from photon.lab.wan.links import Change, DirectionNow

LEADER = "leader"  # As a target: the leader of the registry's first shard when the fault begins.


class Do(enum.StrEnum):
    """The faults. Each ends when its time is over or when it is healed."""

    KILL = "kill"  # kill -9; with a time: down for that long, else restarted at once by its supervisor
    PAUSE = "pause"  # SIGSTOP, later SIGCONT.
    CUT = "cut"  # between two regions, or one and all others: bytes are dropped, connections reset or refused
    LOSS = "loss"  # connections between two regions are reset repeatedly, as with long packet loss
    DELAY = "delay"  # additional one-way delay between two regions
    DISK = "disk"  # the file system of a process's state is full
    CLOCK = "clock"  # a process restarts with a wrong wall clock
    # The end of a datacentre's newest event log is missing for a while, as after a crash of its writer's machine.
    TRUNCATE = "truncate"
    AWAY = "away"  # A whole datacentre ends with kill -9 and receives nothing; its state is kept or lost.
    RESTART = "restart"  # Processes are ended gracefully and restarted, one after another: a rolling upgrade.
    RESHARD = "reshard"  # The registry's number of shards is changed: not a fault, but combined with all others.


NEEDS_TWO_REGIONS = frozenset({Do.LOSS, Do.DELAY})
INSTANT = frozenset({Do.RESTART, Do.RESHARD})  # take as long as they need, so ``for`` is not used


class ChaosFailed(PhotonError):
    """A fault cannot be applied or healed, or the run cannot continue."""


class WrongScenario(UsageError):
    """A scenario file is wrong, or names a target that does not exist. The message names the place of the error."""


@dataclass(frozen=True, slots=True)
class Step:
    at_s: float  # seconds from the start of the run
    for_s: float  # 0: the fault is over at once
    do: Do
    # Names of processes, of a datacentre (away, truncate) or of regions (cut, loss, delay); none for reshard
    target: tuple[str, ...]
    # ``fault``, ``both`` of a cut; ``delay`` in seconds, one way; ``skew`` in seconds; ``state`` of away; ``shards``
    # of reshard
    options: Mapping[str, str | float | bool] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s

    def words(self) -> str:
        """Describes the fault: ``pause joiner east-1 for 5 s``."""
        more = ", ".join(f"{key} {value}" for key, value in self.options.items())
        lasts = f" for {self.for_s:g} s" if self.for_s else ""
        return f"{self.do} {', '.join(self.target)}".rstrip() + lasts + (f" ({more})" if more else "")


@dataclass(frozen=True, slots=True)
class ProcessNow:
    up: bool  # True if its supervisor finds it healthy
    pid: int | None
    detail: str = ""
    restarts: int = 0
    skewed: bool = False  # True if it was given a wrong wall clock


class Target(Protocol):
    """A running deployment. Every method raises ChaosFailed, and may be called again after a failure."""

    @property
    def able(self) -> frozenset[Do]:
        """The faults that are possible here."""

    @property
    def fillable(self) -> Sequence[str]:
        """Processes whose file system may be filled."""

    async def processes(self) -> Mapping[str, ProcessNow]:
        """All processes by name, in the order of their start."""

    async def kill(self, names: Sequence[str], *, hold: bool) -> None:
        """Ends processes with SIGKILL. With ``hold`` they stay down until ``release``."""

    async def release(self, names: Sequence[str]) -> None:
        """Starts processes that are held down."""

    async def pause(self, names: Sequence[str]) -> None:
        """Suspends processes."""

    async def resume(self, names: Sequence[str]) -> None:
        """Resumes suspended processes."""

    async def restart(self, name: str) -> None:
        """Ends a process gracefully and starts it again."""

    async def directions(self) -> Sequence[DirectionNow]:
        """The state of each direction between regions; none without a proxy between them."""

    async def change(self, changes: Sequence[Change]) -> None:
        """Changes the delay or fault of directions between regions."""

    async def fill(self, name: str) -> None:
        """Takes all free space of the file system that holds a process's state."""

    async def empty(self, name: str) -> None:
        """Frees the space that ``fill`` took."""

    async def skew(self, name: str, seconds: float | None) -> None:
        """Restarts a process with a wall clock that is wrong by ``seconds``; ``None`` corrects the clock."""

    async def wipe(self, datacentre: str) -> None:
        """Deletes the state of the dispatcher and the event store of a datacentre that is down. Slots stay: they may
        hold records that exist nowhere else."""

    async def photon(self, arguments: Sequence[str]) -> str:
        """Runs ``photon ARGUMENTS --config FILE`` on a machine with the deployment file; returns its standard
        output."""
