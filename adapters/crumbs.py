"""Remembers across a process's death that user code was running, and on which record.

A guard notes each batch in a small mapped file before user code runs, which costs one byte; the kernel keeps it when
the process dies by a signal or ``os._exit``. A start that finds such a note is suspicious: user code is then called
record by record, after noting each record's digest, so that a second death identifies the record. From then on user
code is not called for that record any more; it is on the poison list next to the file.

A death that may have another cause (SIGKILL, SIGTERM, or an unknown one) counts for less: a record is set aside only
when the process died in it ``DEATHS_MAX`` times in a row.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson
import xxhash

from photon.config.disk import Disk
from photon.config.versioned_file import sealed, unsealed

# Environment variable in which a supervisor passes how the previous process ended: ``signal 11``, ``exit 0``
ENDED = "PHOTON_PREDECESSOR_ENDED"
DIRECTORY = "user-code"  # Name of the directory in a process's state
CRUMBS_NAME = "calls"
POISON_NAME = "poison-records"
MAGIC = b"PHCR 1\n\0"
POISON_MAGIC = b"PHPR 1 "
FILE_BYTES = 4096
DEATHS_MAX = 3
FIRST_BUDGET = 4096  # minimum of records passed one by one after a death; each further death doubles it
BUDGET_MAX = 1 << 24
POISON_MAX = 1000
_OUTSIDE, _BATCH, _RECORD = 0, 1, 2
_BUDGET_AT, _CAUSE_AT, _CAUSE_BYTES, _SLOTS_AT, _SLOT_BYTES = 8, 16, 256, 512, 32
_SLOTS = (FILE_BYTES - _SLOTS_AT) // _SLOT_BYTES
CLOSED = "the adapter closed files that are not its own"
FULL = "the adapter opened so many files that the process can open no more"
FILES_MIN = 16  # files the process may still open
OOM_SCORE = 500  # in the range -1000 to 1000
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# Keeps the interpreter's lock: a thread that releases it for a short call waits for the other threads' turns
LIBC = ctypes.PyDLL(None, use_errno=True)
LAST_SIGNAL = signal.SIGXCPU  # nobody handles it, so that the kernel ends the process by itself
_WORDS = {f"signal {int(LAST_SIGNAL)}": "it blocked all other threads for twice limits.adapter_timeout"}
_FOREIGN_ENDS = ("", "signal 9", "signal 15", "signal 2", "signal 1")


def _say(line: str, **fields: object) -> None:
    from photon.config.structured import get_logger  # Spark's workers import this module and do not log

    get_logger(__name__).warning(line, **fields)


def digest_of(item: object) -> bytes:
    """Returns the digest of a call's record or records: bytes, an object with a ``record``, or a tuple with bytes."""
    if isinstance(item, bytes):
        return xxhash.xxh3_128_digest(item)
    record = getattr(item, "record", None)
    parts: Iterable[object] = (record,) if isinstance(record, bytes) else item if isinstance(item, tuple) else ()
    whole = [each for each in parts if isinstance(each, bytes)]
    if len(whole) == 1:
        return xxhash.xxh3_128_digest(whole[0])
    return xxhash.xxh3_128_digest(b"".join(b"%d:%b" % (len(each), each) for each in whole))


_began: list[bool] = []


def runs_user_code() -> bool:
    """True if this process has kept crumbs, that is, runs user code."""
    return bool(_began)


def end_first() -> None:
    """Makes the kernel prefer to end this process when memory runs out, unless a preference is already set."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
        if not int(file.read()):
            file.write(f"{OOM_SCORE}")


def died_in_user_code(directory: Path) -> bool:
    """True if the last process that used ``directory`` ended while user code was running."""
    try:
        raw = (directory / CRUMBS_NAME).read_bytes()
    except OSError:
        return False
    return raw[: len(MAGIC)] == MAGIC and any(raw[_SLOTS_AT::_SLOT_BYTES])


_told: list[str] = []


def predecessor(told: str | None = None) -> str:
    """Returns how this process's predecessor ended (``ended_words``); empty if unknown.

    A call with ``told`` sets the result of this and later calls. Children do not inherit it.
    """
    ended = os.environ.pop(ENDED, "")
    if told is not None or not _told:
        _told[:] = [ended if told is None else told]
    return _told[0]


def ended_words(code: int) -> str:
    """Describes how a process ended: ``exit N``, or ``signal N`` if ``code`` is -N."""
    return f"signal {-code}" if code < 0 else f"exit {code}"


class CrumbsBusy(OSError):
    """Another process has the crumbs open."""


class Crumbs:
    """One process's notes on its user code. Thread-safe."""

    def __init__(self, directory: Path, disk: Disk, ended: str) -> None:
        """``ended``: how the predecessor ended (``ended_words``). Raises OSError, CrumbsBusy."""
        self._disk = disk
        self._poison_file = directory / POISON_NAME
        disk.make_dir(directory)
        self.lock = threading.Lock()  # held in user code while suspicious: one record at a time
        descriptor = os.open(directory / CRUMBS_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, and no copy of it has it
            os.ftruncate(descriptor, FILE_BYTES)
            self._map = mmap.mmap(descriptor, FILE_BYTES)
        except BlockingIOError:
            os.close(descriptor)
            raise CrumbsBusy(f"{directory}: another process uses it") from None
        except OSError:
            os.close(descriptor)
            raise
        # A canary: code that closes all files closes this one too.
        self._canary = os.memfd_create("photon-user-code", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(self._canary, fcntl.F_ADD_SEALS, _SEALS)
        self._files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_MIN
        self._free = list(range(_SLOTS))
        self._deaths: dict[bytes, int] = {}
        self.poison: dict[bytes, str] = {}  # Digest -> why user code is not called for such a record
        self._load()
        self._left = 0
        self._begin(ended)
        _began.append(True)
        end_first()

    @property
    def suspicious(self) -> bool:
        """True while records are passed one by one."""
        return self._left > 0

    # -- a guard's calls ---------------------------------------------------------------------------------------------
    def enter(self) -> int:
        """Notes that user code runs from now on. Returns the slot to pass to ``on`` and ``leave``."""
        try:
            slot = self._free.pop()
        except IndexError:  # too many threads: this one is not noted
            return -1
        self._map[_SLOTS_AT + slot * _SLOT_BYTES] = _BATCH
        return slot

    def on(self, slot: int, digest: bytes) -> None:
        """Notes that the next call is about this record."""
        self._left -= 1
        if slot >= 0:
            at = _SLOTS_AT + slot * _SLOT_BYTES
            self._map[at + 8 : at + 24] = digest
            self._map[at] = _RECORD

    def leave(self, slot: int) -> None:
        """Notes that user code has returned."""
        if slot >= 0:
            self._map[_SLOTS_AT + slot * _SLOT_BYTES] = _OUTSIDE
            self._free.append(slot)

    def harm(self) -> str:
        """Describes the damage user code has done to this process's open files; empty if there is none."""
        if LIBC.fcntl(self._canary, fcntl.F_GET_SEALS) != _SEALS:
            return CLOSED
        copy = LIBC.fcntl(self._canary, fcntl.F_DUPFD_CLOEXEC, 0)  # the lowest free number
        if copy >= 0:
            LIBC.close(copy)
        return "" if 0 <= copy < self._files_max else FULL

    def blame(self, cause: str) -> None:
        """Notes why the process is about to end itself. The record noted last is to blame."""
        raw = cause.encode()[:_CAUSE_BYTES]
        self._map[_CAUSE_AT : _CAUSE_AT + _CAUSE_BYTES] = raw.ljust(_CAUSE_BYTES, b"\0")

    # -- the start ---------------------------------------------------------------------------------------------------
    def _begin(self, ended: str) -> None:
        raw = bytes(self._map)
        own = raw[_CAUSE_AT : _CAUSE_AT + _CAUSE_BYTES].rstrip(b"\0").decode("utf-8", "replace")
        states = raw[_SLOTS_AT::_SLOT_BYTES]
        known, inside = raw[: len(MAGIC)] == MAGIC, any(states)
        budget = int.from_bytes(raw[_BUDGET_AT : _BUDGET_AT + 8], "little") if known else 0
        if known and inside:
            at = [_SLOTS_AT + slot * _SLOT_BYTES for slot, state in enumerate(states) if state == _RECORD]
            foreign = not own and ended in _FOREIGN_ENDS
            self._accuse([raw[each + 8 : each + 24] for each in at], own or ended, foreign=foreign)
            self._left = budget = min(max(FIRST_BUDGET, 2 * budget), BUDGET_MAX)
        self._map[:] = (MAGIC + budget.to_bytes(8, "little")).ljust(FILE_BYTES, b"\0")

    def _accuse(self, digests: list[bytes], how: str, *, foreign: bool) -> None:
        said = how or "the process died on this record"
        if len(digests) != 1:
            _say("the previous process died in an adapter's code; records are passed one by one", ended=how)
            return
        (digest,) = digests
        deaths = self._deaths.get(digest, 0) + 1
        if (foreign and deaths < DEATHS_MAX) or len(self.poison) >= POISON_MAX:
            self._store(self.poison, {digest: deaths})
            _say("the previous process died in an adapter's code, on one record", ended=how, times=deaths)
            return
        reason = f"crashed: {_WORDS.get(said, said)}"
        self._store({**self.poison, digest: reason}, {})
        _say("a record that killed the process is set aside", reason=reason, digest=digest.hex())

    def _store(self, poison: dict[bytes, str], deaths: dict[bytes, int]) -> None:
        made = {
            "poison": {digest.hex(): reason for digest, reason in poison.items()},
            "deaths": {digest.hex(): count for digest, count in deaths.items()},
        }
        self._disk.replace(self._poison_file, sealed(POISON_MAGIC, orjson.dumps(made)))
        self.poison, self._deaths = poison, deaths

    def _load(self) -> None:
        if not self._disk.exists(self._poison_file):
            return
        raw = unsealed(POISON_MAGIC, self._disk.read(self._poison_file))
        if raw is None:
            _say(
                "is damaged or of another version, so it was reset: records that kill the process may do so again",
                file=str(self._poison_file),
            )
            return
        found = orjson.loads(raw)
        self.poison = {bytes.fromhex(digest): reason for digest, reason in found["poison"].items()}
        self._deaths = {bytes.fromhex(digest): count for digest, count in found["deaths"].items()}
