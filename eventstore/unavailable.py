"""Counts and reports primary logs that look-ups need but cannot read, and keeps the list of logs given up.

Keys in an unreadable log are UNAVAILABLE: their events wait, unless the key is also in another log. If the log's file
is permanently gone, an operator gives the log up (``forget``), and its keys count as absent from then on, even after
a restart. Once a file of its identity exists again, the log is no longer given up.

Durable state, format version 1: ``forgotten-logs`` next to the file map, replaced as a whole:

    PHFL 1 <crc32 of the rest, 8 hex digits>
    {"identity": ..., "path": ..., "at_ns": ...}        one line for each log

The follower belongs to the reader's thread; other threads read each log's path and progress in ``PublishedSources``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from photon.adapters.logs.follower import Follower
from photon.adapters.logs.lag import LogReading
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.versioned_file import sealed, unsealed
from photon.eventstore.api import Forgotten, SourceProgress, UnavailableLog
from photon.eventstore.file_map import MappedLog
from photon.eventstore.index import hash_keys
from photon.eventstore.logs_store import GONE, ReadTroubles

FILE_NAME = "forgotten-logs"
MAGIC = b"PHFL 1 "
# Time for which a log must be unavailable before it is reported, and given up if so configured: a rotation or
# compression may be in progress.
GRACE_SECONDS = 5.0
GRACE_ONCE_SECONDS = 1.0  # the same with ``once``: by then two scans have not found it
KEYS_MAX = 10_000  # distinct keys counted per log
LOGS_MAX = 10_000  # unavailable logs that are remembered by name
FORGOTTEN_MAX = 100_000


@dataclass(slots=True)
class _Trouble:
    path: str
    why: str
    since_ns: int
    hashes: set[int] = field(default_factory=set)
    told: bool = False


@dataclass(eq=False)
class UnavailableLogs(ReadTroubles):
    """The primary logs that cannot be read. Thread-safe.

    ``state``: the file map's directory. ``report`` receives one line for each log. Raises OSError.
    """

    state: Path
    clock: Clock
    disk: Disk
    report: Callable[[str], None] = lambda line: None
    forget_missing: bool = False
    once: bool = False  # all logs are read before the first look-up

    def __post_init__(self) -> None:
        self._file = self.state / FILE_NAME
        self._lock = threading.Lock()
        self._troubles: dict[str, _Trouble] = {}
        self._present: Mapping[str, str] | None = None  # identity -> path; ``None`` if not known yet
        self._last_paths: dict[str, str] = {}
        self._forgotten: dict[str, tuple[str, int]] = self._load()
        # Identities of logs whose records count as absent; replaced as a whole.
        self.given_up: frozenset[str] = frozenset(self._forgotten)
        # Identities of logs whose files have been gone for longer than the grace time; replaced as a whole.
        self.gone: frozenset[str] = frozenset()

    # -- what reading the logs reports -------------------------------------------------------------------------------
    def failed(self, log: MappedLog, why: str, keys: Sequence[bytes]) -> None:
        with self._lock:
            if self._present is None and why == GONE:  # no scan has been made yet
                return
            trouble = self._troubles.get(log.identity)
            if trouble is None:
                if len(self._troubles) >= LOGS_MAX:
                    return
                trouble = _Trouble(self._path(log), why, self.clock.now_ns())
                self._troubles[log.identity] = trouble
            trouble.why = why
            if len(trouble.hashes) < KEYS_MAX:
                trouble.hashes.update(hash_keys(keys[:KEYS_MAX]).tolist())

    def succeeded(self, log: MappedLog) -> None:
        if log.identity in self._troubles:
            with self._lock:
                self._troubles.pop(log.identity, None)

    def elsewhere(self, log: MappedLog, key: bytes) -> None:
        with self._lock:
            if (trouble := self._troubles.get(log.identity)) is not None:
                trouble.hashes.difference_update(hash_keys([key]).tolist())

    # -- what the reader sees ----------------------------------------------------------------------------------------
    def scanned(self, present: Mapping[str, str]) -> None:
        """Handles a scan's result, and reports due problems. ``present``: path of each log that has a file now."""
        now_ns = self.clock.now_ns()
        with self._lock:
            self._present = present
            self._last_paths.update(present)
            concerned = self._troubles or self._forgotten
            lines = [*self._back(present), *self._due(now_ns)] if concerned else []
            self.gone = frozenset(i for i, each in self._troubles.items() if each.told and each.why == GONE)
        for line in lines:
            self.report(line)

    def _back(self, present: Mapping[str, str]) -> list[str]:
        gone = {
            identity: each for identity, each in self._troubles.items() if each.why == GONE and identity in present
        }
        for identity in gone:
            del self._troubles[identity]
        back = self._forgotten.keys() & present.keys()
        if back:
            self._store({identity: each for identity, each in self._forgotten.items() if identity not in back})
        told = {identity for identity, each in gone.items() if each.told} | back
        return [f"{present[identity]}: is back; its records can be looked up again" for identity in sorted(told)]

    def _due(self, now_ns: int) -> list[str]:
        lines = []
        due_ns = now_ns - int((GRACE_ONCE_SECONDS if self.once else GRACE_SECONDS) * 1e9)
        for identity, trouble in list(self._troubles.items()):
            if trouble.told or trouble.since_ns > due_ns or not trouble.hashes:
                continue
            trouble.told = True
            named = f"{trouble.path} ({identity[:8]}): {trouble.why}"
            keys = f"{_count(len(trouble.hashes), KEYS_MAX)} that are, or may be, in it"
            if trouble.why != GONE:
                lines.append(f"{named}; {keys} cannot be looked up; make it readable")
            elif self.forget_missing and len(self._forgotten) < FORGOTTEN_MAX:
                self._give_up({identity: trouble.path})
                lines.append(f'{named}; {keys} count as absent (missing_logs = "forget")')
            else:
                lines.append(
                    f"{named}; {keys} are joined from other logs if possible, else they wait: bring it back, or "
                    "give it up with photon eventstore forget"
                )
        return lines

    # -- what the operator asks --------------------------------------------------------------------------------------
    def listed(self) -> tuple[UnavailableLog, ...]:
        """Returns the logs that look-ups could not read and the logs given up, by path."""
        with self._lock:
            return self._listed()

    def _listed(self) -> tuple[UnavailableLog, ...]:
        present = self._present or {}
        found = [
            UnavailableLog(each.path, identity, each.why, len(each.hashes), each.since_ns, identity in present)
            for identity, each in self._troubles.items()
            if identity not in self._forgotten
        ]
        found += [
            UnavailableLog(path, identity, GONE, 0, at_ns, forgotten=True)
            for identity, (path, at_ns) in self._forgotten.items()
        ]
        return tuple(sorted(found, key=lambda each: (each.path, each.identity)))

    @property
    def any(self) -> bool:
        """True if calling ``scanned`` again can change anything."""
        return bool(self._troubles or self._forgotten)

    def counts(self) -> tuple[int, int]:
        """Returns (unreadable logs, requested keys in them), without those given up."""
        with self._lock:
            waiting = [
                each for identity, each in self._troubles.items() if each.hashes and identity not in self._forgotten
            ]
            return len(waiting), sum(len(each.hashes) for each in waiting)

    def forget(self, names: Sequence[str], logs: Iterable[MappedLog], *, apply: bool) -> Forgotten:
        """Gives up logs without a file, named by path, by identity or by its first digits.

        Without ``names``, gives up all logs whose file look-ups missed. Raises OSError.
        """
        with self._lock:
            if self._present is None:
                return Forgotten(refused=("the primary logs have not been scanned yet; try again in a moment",))
            chosen: dict[str, str] = {}
            refused = []
            by_name = self._by_name(logs, set(names))
            for name in dict.fromkeys(names):
                named = by_name.get(name, {})
                gone = {identity: path for identity, path in named.items() if identity not in self._present}
                chosen |= gone
                if not named:
                    refused.append(f"{name}: no primary log of this name was ever read")
                elif not gone:
                    refused.append(f"{name}: exists; only a log whose file is gone can be given up")
            if not names:
                chosen = {i: each.path for i, each in self._troubles.items() if each.why == GONE}
            chosen = {i: path for i, path in chosen.items() if i not in self._forgotten}
            if len(self._forgotten) + len(chosen) > FORGOTTEN_MAX:
                refused.append(f"at most {FORGOTTEN_MAX} logs can be given up")
                chosen = {}
            shown = tuple(self._as_unavailable(identity, path) for identity, path in sorted(chosen.items()))
            if apply and chosen:
                self._give_up(chosen)
        if apply:
            for each in shown:
                self.report(f"{each.path} ({each.identity[:8]}): given up; its keys count as absent")
        return Forgotten(shown, tuple(refused))

    def _by_name(self, logs: Iterable[MappedLog], names: set[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        if not names:
            return found
        for log in logs:
            path = self._path(log)
            for name in {path, log.identity, log.identity[:8]} & names:
                found.setdefault(name, {})[log.identity] = path
        return found

    def _as_unavailable(self, identity: str, path: str) -> UnavailableLog:
        trouble = self._troubles.get(identity)
        keys, since = (len(trouble.hashes), trouble.since_ns) if trouble is not None else (0, 0)
        return UnavailableLog(path, identity, GONE, keys, since)

    def _path(self, log: MappedLog) -> str:
        return self._last_paths.get(log.identity, log.file.path)

    # -- durable -----------------------------------------------------------------------------------------------------
    def _give_up(self, chosen: Mapping[str, str]) -> None:
        now_ns = self.clock.now_ns()
        self._store(self._forgotten | {identity: (path, now_ns) for identity, path in chosen.items()})

    def _store(self, forgotten: dict[str, tuple[str, int]]) -> None:
        """Makes the list durable, then puts it into effect. If it raises OSError, nothing has changed."""
        lines = b"".join(
            orjson.dumps({"identity": identity, "path": path, "at_ns": at_ns}) + b"\n"
            for identity, (path, at_ns) in sorted(forgotten.items())
        )
        self.disk.replace(self._file, sealed(MAGIC, lines))
        self._forgotten, self.given_up = forgotten, frozenset(forgotten)

    def _load(self) -> dict[str, tuple[str, int]]:
        if not self.disk.exists(self._file):
            return {}
        lines = unsealed(MAGIC, self.disk.read(self._file))
        if lines is None:
            self.report(f"{self._file}: is damaged and ignored; look-ups wait again for logs that were given up")
            return {}
        parsed = map(orjson.loads, lines.splitlines())
        return {each["identity"]: (each["path"], each["at_ns"]) for each in parsed}


def _count(keys: int, most: int) -> str:
    if keys == 1:
        return "1 key"
    return f"{keys:,} keys or more" if keys >= most else f"{keys:,} keys"


PATHS_SECONDS = 0.5  # interval of searches for logs that look-ups have missed
READINGS_SECONDS = 0.5  # shortest interval of computing each source's progress, and only on request


@dataclass(eq=False)
class PublishedSources:
    """Publishes each log's path and progress to other threads.

    Call ``note`` and ``look`` on the reader's thread, the rest on any. ``scanned_ns``: when the last scan began.
    """

    follower: Follower
    unavailable: UnavailableLogs
    monotonic: Callable[[], float]
    scanned_ns: Callable[[], int]

    def __post_init__(self) -> None:
        self._paths: Mapping[str, str] = {}
        self._moves = -1
        self._looked_at = self._read_at = float("-inf")
        self._wanted = threading.Event()
        self._made = threading.Event()
        self._readings: tuple[SourceProgress, ...] = ()

    # -- the reader's thread -----------------------------------------------------------------------------------------
    def note(self) -> None:
        """Publishes changes; call it after each step."""
        follower = self.follower
        moved = follower.moves != self._moves
        if moved:
            self._moves = follower.moves
            self._paths = follower.present()
        now = self.monotonic()
        # Until the reader has caught up, a log may be in a file not examined yet.
        if follower.caught_up() and (moved or now - self._looked_at >= PATHS_SECONDS):
            self._looked_at = now
            self.unavailable.scanned(self._paths)
        if self._wanted.is_set() and now - self._read_at >= READINGS_SECONDS:
            self._read_at = now
            self._publish_readings()

    def look(self) -> None:
        """Like ``note``, for a reader that has ended: logs found from now on stay unread."""
        if self.unavailable.any:
            self._paths = self.follower.present()
            self.unavailable.scanned(self._paths)
        self._publish_readings()

    def _publish_readings(self) -> None:
        if self._wanted.is_set():
            self._wanted.clear()
            self._readings = tuple(self._progress(each) for each in self.follower.readings())
            self._made.set()

    def _progress(self, each: LogReading) -> SourceProgress:
        read_past_ns = self.scanned_ns() if each.since_ns is None else each.since_ns
        return SourceProgress(each.path, each.identity, each.offset, each.bytes_read, each.bytes_known, read_past_ns)

    # -- everybody ---------------------------------------------------------------------------------------------------
    def path_of(self, identity: str) -> str | None:
        return self._paths.get(identity)

    def progress(self, timeout: float) -> tuple[SourceProgress, ...]:
        """Returns each log's progress, by path.

        Waits at most ``timeout`` seconds for the reader's thread, then returns the last known progress.
        """
        self._made.clear()
        self._wanted.set()
        self._made.wait(timeout)
        return self._readings
