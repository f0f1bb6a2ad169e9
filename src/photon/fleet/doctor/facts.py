"""What ``photon doctor`` looks at, gathered: plain values, so that the checks are pure."""

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
    """The directory that the rest was measured in: the path, or the next one above it that is there."""
    problem: str = ""
    """Why nothing can be written there."""
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
    """Texts that usually stand for no value -> how many sampled records have them as their key."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where a process of the deployment listens."""

    who: str
    address: str
    state: str
    """ours, free, taken, elsewhere (not an address of this machine)."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """One that is asked over the network. ``problem`` set: it did not answer."""

    datacentre: str
    name: str
    address: str
    problem: str = ""
    version: str = ""
    ahead_s: float | None = None
    """By how much its clock is ahead of this machine's; None: it does not say its time."""
    error_s: float = 0.0
    """And by how much this may be wrong, either way."""
    open_files: float = 0.0
    max_files: float = 0.0
    ambiguous_keys: float = 0.0
    """Of an event store: keys that it found several different primary events for."""
    adapter: tuple[str, str] = ("", "")
    """Of a dispatcher: its join, and which code the join's adapter is; none where it is Photon's own."""
    unmatched_waits: str = ""  # of a joiner: why it calls no event unmatched, and what to do
    alarms: Sequence[tuple[str, str]] | None = None
    """Of computations: what is wrong, and what to do. None: it is another process."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate of ``[tls]``, and its key."""

    identity: str
    path: str
    there: bool
    problem: str = ""
    """Why it cannot be used."""
    ends: datetime | None = None
    key_mode: int = 0
    """Permission bits of its key."""


@dataclass(frozen=True, slots=True)
class Secret:
    path: str
    problem: str = ""
    mode: int = 0


@dataclass(frozen=True, slots=True)
class Package:
    """A package that this installation needs. ``found`` empty: it is missing."""

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
    """Whether the kernel's clock is; None: it does not say."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The boundary of one shard. ``age_s`` None: it has not moved."""

    shard: int
    age_s: float | None


@dataclass(frozen=True, slots=True)
class State:
    """A file of ours whose version or content this release cannot use."""

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
    """The percentile."""
    still_s: float
    """Since it has moved."""
    exact_still_s: float
    """Since the exact one has, less the time for which an event may wait; 0: there is none."""
    held_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TablesFacts:
    """Of ``[tables]``. ``problem`` set: the store did not answer, and the rest is not known."""

    where: str
    problem: str = ""
    oracle_problem: str = ""
    """Why there are no timestamps."""
    stuck: int = 0
    """Cells that wait for observers, the oldest of which waited all the time."""
    stuck_at: str = ""
    old_locks: Sequence[str] = ()
    """Cells with a lock of a dead client, or an old one."""
    looked_at: int = 0
    """Cells that were looked at for locks."""
    safe_point_s: float | None = None
    """Since it was moved; None: it never was."""
    keep_s: float = 0.0
    observed: bool = False
    """The deployment keeps observers running, which move it."""


@dataclass(frozen=True, slots=True)
class Registry:
    """``findings``: (level, where, what, do) of ``photon doctor registry``."""

    findings: Sequence[tuple[str, str, str, str]] = ()
    replicas: int = 0
    up: int = 0
    boundaries: Sequence[Boundary] = ()
    retention_s: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. ``here``: datacentres that are on this machine, as far as can be told."""

    file: str
    machine: Machine
    uncertainty_s: float
    here: Sequence[str]
    one_machine: bool = True
    """All of its addresses are of this machine alone."""
    mistakes: Sequence[str] = ()
    """Mistakes in the configuration, each one line."""
    loaded: bool = True
    """False: there is no file, or it cannot be used: only this machine is looked at."""
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
    """None: there is no ``[tables]``, or nothing has been made yet."""
    ranges: Sequence[OutputRange] = ()

    @property
    def running(self) -> bool:
        return any(not each.problem for each in self.processes)
