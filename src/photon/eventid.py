"""Event ids for the servers that write events: ``ServerIP:ProcessID:TimestampMicros`` (paper, section 3.1).

Within a process ids strictly increase: across threads, backward clock steps and, with a ``state`` file, restarts. So
an id is unique as long as no two processes of a deployment use the same address and process id at once, and the event
store can index a log of ids sparsely. ``docs/eventid.md`` has the guarantees and their limits.

Imports only the standard library and ``photon.config``: an event server needs no other part of Photon.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError

MICROS_MAX = 2**63 - 1
"""Largest timestamp that fits into a row key of the sparse file map."""
TIME_MAX_US = MICROS_MAX // 1000
"""The last microsecond (in the year 2262) whose event time fits into int64 nanoseconds."""
PID_LIMIT = 1 << 32
TAKE_MAX = 1 << 20
"""Most ids that one ``take`` may ask for: about 100 MB of text."""
RESERVED_US = 1_000_000
"""With ``state``: distance of the mark beyond the last id. It costs one write a second. After a crash, ids begin at
most this far ahead of the clock, well below the clock uncertainty S (5 s) that the registry allows for."""

_MAGIC = b"PHEI"
_VERSION = 1
_MARK = struct.Struct("<4sHHQ")  # magic, version, 0, first unreserved microsecond; a CRC-32 follows
_CRC = struct.Struct("<I")
_NOT_RESERVED = TIME_MAX_US + 1
_FORM = "an event id is ServerIP:ProcessID:TimestampMicros, for instance 10.0.0.7:4021:1760000000000000"
_SHOWN = 80
_DOCUMENTATION_NETS = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # RFC 5737, RFC 3849

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class EventIdError(PhotonError):
    """An id cannot be parsed or made. ``str()`` is one line: what failed, where, and what to do."""


# -- reading ids ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, order=True)
class EventId:
    """The parts of an id; ``str()`` is its canonical form. Ids of one process sort by time."""

    ip: str
    pid: int
    time_us: int

    @property
    def time_ns(self) -> int:
        """Event time, int64 nanoseconds UTC."""
        return self.time_us * 1000

    def __str__(self) -> str:
        return f"{self.ip}:{self.pid}:{self.time_us}"


def parse(event_id: str | bytes) -> EventId:
    """Splits a canonical id into its parts at the last two colons, as IPv6 addresses contain colons.

    Raises EventIdError, which names the wrong part.
    """
    text = event_id.decode("utf-8", "backslashreplace") if isinstance(event_id, bytes) else event_id
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    parts = text.rsplit(":", 2)
    if len(parts) != 3:
        raise EventIdError(f"{shown}: has fewer than two colons; {_FORM}")
    ip, pid, micros = parts
    for name, number, limit in (("process id", pid, PID_LIMIT), ("time", micros, TIME_MAX_US + 1)):
        if not _is_number(number.encode("utf-8", "replace")) or int(number) >= limit:
            raise EventIdError(f"{shown}: its {name} is not a decimal number from 0 to {limit - 1}; {_FORM}")
    if _address(ip.encode("utf-8", "replace")) is None:
        raise EventIdError(f"{shown}: {_why_not(ip)}; {_FORM}")
    return EventId(ip, int(pid), int(micros))


def time_ns(event_id: str | bytes) -> int:
    """The event time in an id, int64 nanoseconds UTC. Raises EventIdError."""
    return parse(event_id).time_ns


def split(event_id: bytes) -> tuple[bytes, int] | None:
    """Splits an id at its last colon into (``ServerIP:ProcessID``, microseconds); None if the microseconds are not
    canonical. For parsing many ids: ``process`` need only be called once per process.
    """
    text, _, micros_text = event_id.rpartition(b":")
    if not _is_number(micros_text):
        return None
    micros = int(micros_text)
    return None if micros > MICROS_MAX else (text, micros)


def process(text: bytes) -> tuple[IpAddress, int] | None:
    """Splits ``ServerIP:ProcessID`` into (address, process id); None if it is not in canonical form.

    Each process has exactly one spelling: no leading zeros, IPv6 compressed, in lower case and without a zone, and
    IPv4 addresses never written as IPv6.
    """
    ip_text, colon, pid_text = text.rpartition(b":")
    if not colon or not _is_number(pid_text):
        return None
    pid = int(pid_text)
    ip = _address(ip_text)
    return None if ip is None or pid >= PID_LIMIT else (ip, pid)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and (text[0] != 48 or text == b"0") and len(text) <= 19


def _address(text: bytes) -> IpAddress | None:
    try:
        written = text.decode("ascii")
        ip = ipaddress.ip_address(written)
    except ValueError:  # UnicodeDecodeError is one
        return None
    return ip if _canonical(ip) == written else None


def _canonical(ip: IpAddress) -> str | None:
    """Returns an address's canonical form; None if it has a zone, which is only valid on one machine."""
    if ip.version == 6:
        if ip.scope_id is not None:
            return None
        ip = ip.ipv4_mapped or ip
    return str(ip)


def _why_not(text: str) -> str:
    try:
        right = _canonical(ipaddress.ip_address(text))
    except ValueError:
        return f"{text[:_SHOWN]!r} is not an IP address"
    return f"{text!r} has a zone" if right is None else f"the address {text!r} must be written {right!r}"


# -- making ids ----------------------------------------------------------------------------------------------------
def own_ip() -> str:
    """Returns an address of this machine without sending a packet: the source address of its route to the outside.

    Unique only if the deployment's machines have distinct addresses: containers behind a bridge often share theirs
    with containers of other hosts. Raises EventIdError if the machine has only a loopback address.
    """
    for family, outside in _DOCUMENTATION_NETS:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))  # on a datagram socket this only chooses the route
            if (found := _own(probe.getsockname()[0])) is not None:
                return found
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_DGRAM):
            if (found := _own(str(address[0]))) is not None:
                return found
    raise EventIdError("this machine has only a loopback address; name an address that no other server has")


def _own(text: str) -> str | None:
    ip = ipaddress.ip_address(text)
    return None if ip.is_loopback or ip.is_unspecified or ip.is_link_local else _canonical(ip)


def wall_us() -> int:
    """The machine's clock in microseconds since the epoch. It may jump."""
    return time.time_ns() // 1000


class _Sequence:
    """The one sequence of times under a name ``ip:pid:`` in this process; outlives the objects that draw from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next_us = 0
        self.user: weakref.ref[EventIds] | None = None


_sequences: dict[str, _Sequence] = {}
"""Sequences by name; only tests have more than one."""
_sequences_lock = threading.Lock()


class EventIds:
    """Makes the ids of one process. Thread-safe, but not to be called from signal handlers."""

    def __init__(
        self,
        ip: str,
        pid: int | None = None,
        *,
        state: Path | None = None,
        now_us: Callable[[], int] = wall_us,
        disk: Disk | None = None,
    ) -> None:
        """``ip``: an address that no other server has (see ``own_ip``). ``pid``: by default the process's own.

        ``state``: a file on a local disk, opened by one process at a time; created if missing. Without it, ids
        increase over restarts only if the clock does. Raises EventIdError.
        """
        try:
            address = ipaddress.ip_address(ip)
        except ValueError:
            raise EventIdError(
                f"ip = {ip!r}: is not an IP address; name the server's, for instance 10.0.0.7"
            ) from None
        text = _canonical(address)
        if text is None or address.is_unspecified or address.is_multicast:
            raise EventIdError(
                f"ip = {ip!r}: is not the address of a single server; name the server's, for instance 10.0.0.7"
            )
        if pid is not None and not 0 <= pid < PID_LIMIT:
            raise EventIdError(f"pid = {pid}: must be from 0 to {PID_LIMIT - 1}")
        self._ip = text
        self._own_pid = pid is None
        self._now_us = now_us
        self._ended = ""
        self._mark: _Mark | None = None
        self._reserved_us = _NOT_RESERVED
        self._name = f"{text}:{os.getpid() if pid is None else pid}:"
        self._sequence = _use(self._name, self)
        if state is None:
            return
        try:
            self._mark = _Mark(state, disk or RealDisk())
        except BaseException:
            self._sequence.user = None
            raise
        self._release = weakref.finalize(self, self._mark.release)
        self._reserved_us = self._mark.read_us
        self._sequence.next_us = max(self._sequence.next_us, self._reserved_us)

    def next(self) -> str:
        """Returns the next id. Raises EventIdError if closed, forked, or if the state cannot be written; no id is
        used then."""
        first = self._take(1)
        return f"{self._name}{first}"

    def take(self, count: int) -> list[str]:
        """Returns the next ``count`` ids (0 to TAKE_MAX) in order; much cheaper per id than ``next``. Raises like
        ``next``.
        """
        if not 0 <= count <= TAKE_MAX:
            raise ValueError(f"count must be from 0 to {TAKE_MAX}, not {count}")
        first = self._take(count)
        return list(map(self._name.__add__, map(str, range(first, first + count))))

    @property
    def ahead_us(self) -> int:
        """Microseconds by which the last id is ahead of the clock, because the clock stepped back or is slower than
        ids are taken. Beyond the clock uncertainty S of the deployment, the registry keeps such events waiting.
        """
        return max(0, self._sequence.next_us - 1 - self._now_us())

    def close(self) -> None:
        """Releases the state file, which then has the exact end of the sequence. May be called again."""
        with self._sequence.lock:
            self._ended = self._ended or "was closed; make a new one"
            mark, self._mark = self._mark, None
            if mark is not None:
                if self._sequence.next_us < self._reserved_us:
                    with contextlib.suppress(OSError):  # the existing mark is safe, just further ahead
                        mark.write(self._sequence.next_us)
                mark.unlock()
                self._release()
            if self._sequence.user is not None and self._sequence.user() is self:
                self._sequence.user = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, count: int) -> int:
        """Reserves the next ``count`` microseconds; returns the first."""
        sequence = self._sequence
        with sequence.lock:
            if self._ended:
                raise EventIdError(f"EventIds of {self._name[:-1]}: {self._ended}")
            first = max(self._now_us(), sequence.next_us)
            end = first + count
            if end > self._reserved_us or end > TIME_MAX_US:
                self._reserve(end)
            sequence.next_us = end
            return first

    def _reserve(self, end: int) -> None:
        """Writes a mark beyond ``end`` before any id up to there is handed out."""
        if end > TIME_MAX_US - RESERVED_US:
            raise EventIdError(f"EventIds of {self._name[:-1]}: the clock is beyond the year 2261; set it")
        assert self._mark is not None
        reserved = end + RESERVED_US
        try:
            self._mark.write(reserved)
        except OSError as error:
            raise EventIdError(
                f"{self._mark.path}: cannot be written ({error.strerror or error}); free some space or fix the "
                "disk, then "
                "take ids again"
            ) from None
        self._reserved_us = reserved

    def _forked(self) -> None:
        """In a forked child, continues under the child's pid, or ends if ids would not be unique."""
        before = self._sequence
        before.user = None
        if self._mark is not None:
            self._ended = "after a fork its state file belongs to the parent; make a new one here, with its own file"
            self._mark = None
            self._release()  # the parent keeps its lock
        elif not self._own_pid:
            self._ended = "after a fork its pid belongs to the parent; make a new one here, with its own pid"
        else:
            self._name = f"{self._ip}:{os.getpid()}:"
            self._sequence = _use(self._name, self)
            self._sequence.next_us = max(self._sequence.next_us, before.next_us)


def _use(name: str, user: EventIds) -> _Sequence:
    """Returns the sequence of a name, used by one object at a time. Raises EventIdError."""
    with _sequences_lock:
        sequence = _sequences.setdefault(name, _Sequence())
        if sequence.user is not None and sequence.user() is not None:
            raise EventIdError(f"EventIds of {name[:-1]}: this process has one already; share it, or close it first")
        sequence.user = weakref.ref(user)
        return sequence


def _after_fork_in_child() -> None:
    """Replaces locks that another thread of the parent may have held, as no thread here would release them."""
    global _sequences_lock
    _sequences_lock = threading.Lock()
    for sequence in list(_sequences.values()):
        sequence.lock = threading.Lock()
        user = sequence.user() if sequence.user is not None else None
        if user is not None:
            user._forked()


os.register_at_fork(after_in_child=_after_fork_in_child)


# -- the durable mark ----------------------------------------------------------------------------------------------
class _Mark:
    """The file with the microsecond below which ids may have been handed out. Locked while in use."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Locks the file and reads the mark. Raises EventIdError."""
        self.path = path
        self._disk = disk
        self._lock = _locked(path)
        try:
            self.read_us = self._read()
        except BaseException:
            os.close(self._lock)
            raise

    def release(self) -> None:
        """Releases the file to other processes; call it once."""
        os.close(self._lock)

    def unlock(self) -> None:
        """Unlocks, even if a newly forked child still has a copy of the descriptor."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def write(self, mark_us: int) -> None:
        """Writes the mark durably. Raises OSError; then the file has this mark or the previous one."""
        body = _MARK.pack(_MAGIC, _VERSION, 0, mark_us)
        self._disk.replace(self.path, body + _CRC.pack(zlib.crc32(body)))

    def _read(self) -> int:
        try:
            if not self._disk.exists(self.path):
                return 0
            data = self._disk.read(self.path)
        except OSError as error:
            raise EventIdError(
                f"{self.path}: cannot be read ({error.strerror or error}); fix the disk, or name another state file"
            ) from None
        if data[:4] == _MAGIC and len(data) >= 6 and (version := int.from_bytes(data[4:6], "little")) != _VERSION:
            raise EventIdError(f"{self.path}: has format {version}; use the Photon version that wrote it")
        body, crc = data[: _MARK.size], data[_MARK.size :]
        whole = len(data) == _MARK.size + _CRC.size and body[:4] == _MAGIC and crc == _CRC.pack(zlib.crc32(body))
        if not whole:
            raise EventIdError(
                f"{self.path}: is not a mark of event ids, or is damaged; restore it, or remove it once the clock is "
                "past the last id that this server made"
            )
        return int(_MARK.unpack(body)[3])


def _locked(path: Path) -> int:
    name = path.with_name(
        path.name + ".lock"
    )  # a separate file, as the state file is replaced and would lose its lock
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EventIdError(
            f"{name}: cannot be opened ({error.strerror}); name a state file in a writable directory"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise EventIdError(
            f"{path}: another process uses it; stop that one, or give each process its own state file"
        ) from None
    return descriptor
