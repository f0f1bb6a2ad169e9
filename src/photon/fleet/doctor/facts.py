"""The facts that ``photon doctor`` gathers: plain values, so that the checks are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Directory:
    datacentre: str
    what: str
    """state, output, or registry REPLICA."""
    path: str
    exists: bool
    tried: str
    """The directory that was measured: the path, or its nearest existing parent."""
    problem: str = ""
    """Why it is not writable."""
    free: int = 0
    size: int = 0
    device: int = 0
    file_system: str = ""
    network: bool = False
    sync_s: float = 0.0
    """The slowest of a few small writes with fsync."""


@dataclass(frozen=True, slots=True)
class Logs:
    datacentre: str
    side: str
    path: str
    patterns: Sequence[str]
    problem: str = ""
    """Why the directory cannot be listed."""
    matched: int = 0
    others: int = 0
    """Files below it that no pattern matches."""
    unreadable: Sequence[str] = ()
    join: str = ""
    absent_keys: Mapping[str, int] = field(default_factory=dict)
    """Texts that usually mean "no value" -> number of sampled records that have them as their key."""


@dataclass(frozen=True, slots=True)
class Port:
    """An address at which a process of the deployment listens."""

    who: str
    address: str
    state: str
    """ours, free, taken, elsewhere (not an address of this machine)."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """A process asked over the network. ``problem`` is set if it did not answer."""

    datacentre: str
    name: str
    address: str
    problem: str = ""
    version: str = ""
    ahead_s: float | None = None
    """Its clock minus this machine's. `None` if it does not report its time."""
    error_s: float = 0.0
    """The error of ``ahead_s``, in either direction."""
    open_files: float = 0.0
    max_files: float = 0.0
    ambiguous_keys: float = 0.0
    """Event store: number of keys for which it found several different primary events."""
    adapter: tuple[str, str] = ("", "")
    """Dispatcher: its join, and the code of the join's adapter; empty for one of Photon's own."""
    unmatched_waits: str = ""  # joiner: why it calls no event unmatched, and what to do
    alarms: Sequence[tuple[str, str]] | None = None
    """Computations: what is wrong, and what to do. `None` for other kinds of process."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate of ``[tls]``, and its key."""

    identity: str
    path: str
    there: bool
    problem: str = ""
    """Why it is unusable."""
    ends: datetime | None = None
    key_mode: int = 0
    """Permission bits of the key."""


@dataclass(frozen=True, slots=True)
class Secret:
    path: str
    problem: str = ""
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Package:
    """A package that this installation needs. ``found`` is empty if it is missing."""

    name: str
    wanted: str
    found: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Machine:
    python: str
    python_fits: bool
    version: str
    """Photon's version."""
    packages: Sequence[Package]
    files_soft: int
    files_hard: int
    """RLIMIT_NOFILE."""
    synchronised: bool | None
    """True if the kernel's clock is synchronised. `None` if the kernel does not say."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The boundary of one shard. ``age_s`` is `None` if it has not moved."""

    shard: int
    age_s: float | None


@dataclass(frozen=True, slots=True)
class State:
    """A file of ours with a version or content that this release cannot use."""

    datacentre: str
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class OutputRange:
    """Published bytes of one output file that cannot be read."""

    datacentre: str
    path: str
    start: int
    end: int
    why: str
    marked: str = ""  # since when readers skip it; empty: they stop there
    moved: bool = False  # a finished file that is gone: archived, or lost


@dataclass(frozen=True, slots=True)
class Watermark:
    datacentre: str
    behind_s: float
    """Lag of the percentile watermark."""
    still_s: float
    """Time since it last moved."""
    exact_still_s: float
    """Time since the exact watermark last moved, less the time an event may wait. 0 if there is none."""
    held_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TablesFacts:
    """Facts about ``[tables]``. If ``problem`` is set, the store did not answer and the rest is unknown."""

    where: str
    problem: str = ""
    oracle_problem: str = ""
    """Why there are no timestamps."""
    stuck: int = 0
    """Cells that wait for observers, where the oldest one waited between both looks."""
    stuck_at: str = ""
    old_locks: Sequence[str] = ()
    """Cells locked by a dead client, or locked for long."""
    looked_at: int = 0
    """Number of cells checked for locks."""
    safe_point_s: float | None = None
    """Time since the safe point moved. `None` if it never did."""
    keep_s: float = 0.0
    observed: bool = False
    """True if the deployment keeps observers running; they move the safe point."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry's ``findings``: (level, where, what, do) of ``photon doctor registry``."""

    findings: Sequence[tuple[str, str, str, str]] = ()
    replicas: int = 0
    up: int = 0
    boundaries: Sequence[Boundary] = ()
    retention_s: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. ``here``: datacentres that are on this machine, as far as can be told."""

    file: str
    machine: Machine
    uncertainty_s: float
    here: Sequence[str]
    one_machine: bool = True
    """True if all its addresses are on this machine."""
    mistakes: Sequence[str] = ()
    """Mistakes in the configuration, each one line."""
    loaded: bool = True
    """False if there is no usable file: then only this machine is checked."""
    unasked: str = ""
    """Why the processes were not asked."""
    joins: Sequence[str] = ()
    survives: Sequence[str] = ()
    directories: Sequence[Directory] = ()
    logs: Sequence[Logs] = ()
    ports: Sequence[Port] = ()
    processes: Sequence[Process] = ()
    tls: bool = False
    pairs: Sequence[KeyPair] = ()
    secret: Secret | None = None
    states: Sequence[State] = ()
    registry: Registry = field(default_factory=Registry)
    watermarks: Sequence[Watermark] = ()
    tables: TablesFacts | None = None
    """`None` without ``[tables]``, or before anything has been made."""
    ranges: Sequence[OutputRange] = ()

    @property
    def running(self) -> bool:
        return any(not each.problem for each in self.processes)
