"""Keeps what an adapter does to its event: what it raises is caught, and what does not come back is broken off.

``Guard`` watches calls for progress, not for time: the one counter that its owner raises before each record is all
that the hot path pays. Who looks at the counter depends on the thread:

- The main thread (dispatchers, joiners): a POSIX timer that runs only while adapters are called sends SIGURG, which
  nothing else uses and which by default does nothing. Its handler raises ``Hung`` in the middle of Python code, of a
  blocking call (it is interrupted), and of a regular expression (which looks for signals, though it keeps the
  interpreter's lock, so that no other thread could stop it).
- Any other thread (reading primary logs): a watching thread has ``Hung`` raised there asynchronously. That ends
  Python code; a blocking call ends by itself first.

Code that catches ``Hung`` as well and goes on ends the process, where ``crumbs`` tell the next one which record did.
C code that neither returns nor looks for signals is beyond both. Ticks are counted, not seconds: a process that was
stopped for a minute sees one. Tests of what holds: ``tests/unit/adapters/test_containment.py``.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeVar

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, AdapterError, BadRecord, LogFile, Retry
from photon.adapters.crumbs import LIBC, Crumbs, CrumbsBusy, digest_of, predecessor
from photon.adapters.faults import describe, is_interrupt, is_own
from photon.batch.records import Records
from photon.config.disk import Disk

TICKS = 4
"""So many ticks without progress are a time-out: it comes after the time limit, at most a quarter later."""
SIGNAL = signal.SIGURG
SWALLOWED_MAX = 2  # times that ``Hung`` may be caught by an adapter that goes on; then the process ends
LATE_MAX = 20  # records in a row that run out of time; then the adapter's reader ends
ENDED_EXIT = 70
_SIGEV_THREAD_ID = 4
_CLOCK_MONOTONIC = 1
_T = TypeVar("_T")
_R = TypeVar("_R")


class Hung(BaseException):
    """Raised where an adapter's code stands. No Exception: an adapter that catches those does not catch it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """In place of an answer. ``reason``: one line with the adapter's file and line."""

    reason: str
    hung: bool = False  # or without memory: asked again a few times
    retry: bool = False  # asked again until there is an answer


class HasTimeLimit(Protocol):
    @property
    def time_limit_s(self) -> float:
        """Seconds for one call; 0 means no limit."""


class Watched:
    """A stretch of user code: one that does not come back within ``limit_s`` seconds is broken off by ``Hung``.

    For one thread at a time, and not within itself. ``owner``: the user's object, whose files ``where`` names.
    """

    def __init__(self, owner: HasTimeLimit) -> None:
        self.limit_s = owner.time_limit_s
        self.count = 0
        self.where = ""
        self.fired = False
        self.lock = threading.Lock()
        self._owner = owner
        self._depth = sys.getrecursionlimit()
        self._was_lowered = False
        self._raised = 0
        self._seen = -1
        self._ticks = 0
        self._armed = False
        self._alarm = _main_alarm() if threading.get_ident() == _MAIN else _WATCHER

    def __enter__(self) -> None:
        _inside.add(threading.get_ident())
        if self.limit_s > 0:
            self._seen, self._ticks, self._raised, self.fired = -1, 0, 0, False
            self._armed = True
            self._alarm.watch(self)

    def __exit__(self, *error: object) -> None:
        self.disarm()
        self._was_lowered = sys.getrecursionlimit() != self._depth
        if self._was_lowered:
            sys.setrecursionlimit(self._depth)
        _inside.discard(threading.get_ident())
        if _forked:  # user code forked, and both come back here: only one may go on
            os._exit(0)

    def disarm(self) -> None:
        """From here on nothing is raised. Again and again is fine."""
        if self.limit_s > 0:
            self._alarm.forget(self)
            self._armed = False

    def is_late(self) -> bool:
        """Asked once a tick: whether the record of now has had its time."""
        if not self._armed:
            return False
        if self.count != self._seen:
            self._seen, self._ticks, self._raised = self.count, 0, 0
            return False
        self._ticks += 1
        if self._ticks < TICKS:
            return False
        self._ticks = 0
        self._raised += 1
        if self._raised > SWALLOWED_MAX:
            self._give_up()
        return True

    def _give_up(self) -> None:
        """``Hung`` was caught by code that went on, more than once."""

    def note(self, frame: FrameType | None) -> None:
        innermost, own = frame, None
        while frame is not None and own is None:
            own = frame if is_own(frame, self._owner) else None
            frame = frame.f_back
        at = own or innermost
        self.where = "" if at is None else f" ({at.f_code.co_filename}:{at.f_lineno})"


class Guard(Watched):
    """Calls an adapter for records of one batch."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self.adapter = adapter
        self._crumbs = adapter.crumbs
        self._slot = -1
        self._careful = False
        self._harmed = ""

    def each(self, items: Sequence[_T], ask: Callable[[_T], _R], *, ends: bool = False) -> list[_R | Fault]:
        """The answer for each item, or what went wrong with it. ``ends``: for records that are
        new; raises AdapterError when LATE_MAX of them in a row have run out of time."""
        out: list[_R | Fault] = []
        call, excused, last_late = self._noting(ask), -1, -1
        while len(out) < len(items):
            at = len(out)
            try:
                with self:
                    for at in range(len(out), len(items)):
                        self.count += 1
                        out.append(call(items[at]))
            except Hung:
                self.disarm()
                if len(out) < len(items):
                    out.append(self._late())
                    if ends:
                        self._note_late(in_a_row=at == last_late + 1)
                    last_late = at
            except BaseException as error:  # of any kind: it ends this record only
                self.disarm()
                if is_interrupt(error):
                    raise
                if isinstance(error, RecursionError) and self._was_lowered and excused != at:
                    excused = at  # an earlier record has lowered the limit
                elif len(out) < len(items):
                    out.append(self._fault(error))
        if ends and last_late < len(items) - 1:
            self.adapter.late_in_a_row = 0
        return out

    def _note_late(self, *, in_a_row: bool) -> None:
        adapter = self.adapter
        adapter.late_in_a_row = adapter.late_in_a_row + 1 if in_a_row else 1
        if adapter.late_in_a_row >= LATE_MAX:
            what = f"{LATE_MAX} records in a row did not come back within {self.limit_s:g} s{self.where}"
            raise AdapterError(what, type(adapter).__name__, "make it faster, or raise limits.adapter_timeout")

    def many(
        self, ask: Callable[..., _R], *columns: Sequence[object], cut: Callable[[], Iterable[object]] | None = None
    ) -> _R | Fault:
        """Runs one call that covers all records. It is given copies of ``columns``: where it changes them, its
        answer, which may be of another order, is not taken. ``cut``: the records, where no column holds them. A fault
        says nothing of any one record: ask for ``each``."""
        if self._crumbs is not None and not self._may_run(columns, cut):
            return Fault("records are passed one by one")
        handed = [list(column) for column in columns]
        try:
            with self:
                self.count += 1
                answer = ask(*handed)
        except Hung:
            self.disarm()
            return self._late()
        except BaseException as error:
            if is_interrupt(error):
                raise
            return self._fault(error)
        for mine, theirs in zip(columns, handed, strict=True):
            if len(mine) != len(theirs) or not all(map(is_, mine, theirs)):
                _say_once(f"{type(self.adapter).__name__} changes the lists that it is given; it must not")
                return Fault("the adapter changes the lists that it is given")
        return answer

    def _fault(self, error: BaseException) -> Fault:
        # A machine that was short of memory once must not cost a record, like one that was slow once.
        short = isinstance(error, MemoryError)
        return Fault(describe(error, self.adapter), hung=short, retry=isinstance(error, Retry))

    def _may_run(self, columns: Sequence[Sequence[object]], cut: Callable[[], Iterable[object]] | None) -> bool:
        """False where a batch may hold a record that ends the process."""
        crumbs = self._crumbs
        if crumbs is None or not (crumbs.suspicious or crumbs.poison):
            return True
        records = zip(*columns, strict=True) if cut is None else cut()
        return not crumbs.suspicious and crumbs.poison.keys().isdisjoint(map(digest_of, records))

    def _noting(self, ask: Callable[[_T], _R]) -> Callable[[_T], _R | Fault]:
        """Leaves out what is on the poison list, and notes each record while crumbs are suspicious."""
        crumbs = self._crumbs
        if crumbs is None or not (crumbs.suspicious or crumbs.poison):
            return ask
        self._careful = crumbs.suspicious

        def noted(item: _T) -> _R | Fault:
            digest = digest_of(item)
            if (reason := crumbs.poison.get(digest)) is not None:
                return Fault(reason)
            if not self._careful:
                return ask(item)
            crumbs.on(self._slot, digest)
            self._harmed = crumbs.harm()
            try:
                return ask(item)
            finally:
                self._end_if_harmed(crumbs)

        return noted

    def __enter__(self) -> None:
        if self._crumbs is not None:
            if self._careful:
                self._crumbs.lock.acquire()
            self._slot = self._crumbs.enter()
            self._harmed = self._crumbs.harm()
            _MEMORY.limit(self.adapter.memory_limit)
        super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._crumbs is not None:
            _MEMORY.free(self.adapter.memory_limit)
            self._end_if_harmed(self._crumbs)
            self._crumbs.leave(self._slot)
            if self._careful:
                self._crumbs.lock.release()

    def _end_if_harmed(self, crumbs: Crumbs) -> None:
        """Ends the process if its open files were all right when user code began, and no longer are."""
        if not self._harmed and (harm := crumbs.harm()):
            crumbs.blame(harm)
            os._exit(ENDED_EXIT)

    def _give_up(self) -> None:
        if self._crumbs is not None:
            self._crumbs.blame(f"the adapter did not come back within {self.limit_s:g} s, and catches what ends it")
            os._exit(ENDED_EXIT)

    def _late(self) -> Fault:
        reason = f"the adapter did not come back within {self.limit_s:g} s{self.where}"
        _say(reason)
        return Fault(reason, hung=True)


def _say(line: str) -> None:
    from photon.config.structured import get_logger  # each of Spark's workers imports this module, and none logs

    get_logger(__name__).warning(line)


_say_once = lru_cache(maxsize=64)(_say)


def keep_crumbs(adapter: Adapter, directory: Path, disk: Disk) -> Adapter:
    """The adapter, if it is user code from now on with crumbs in ``directory``: what kills the process costs only its
    record."""
    if type(adapter) is not ConfiguredAdapter:
        try:
            adapter.crumbs = Crumbs(directory, disk, predecessor())
        except CrumbsBusy:  # a second process of one state, which is refused later on
            adapter.crumbs = None
    return adapter


def primary_keys_of(guard: Guard, records: Records) -> Sequence[bytes | Fault | None]:
    """The key of each, None for a bad record: those of a file at once where the adapter can, one by one where it
    cannot, or where that goes wrong."""
    adapter = guard.adapter
    if adapter.defines("primary_keys_of"):
        if type(adapter) is ConfiguredAdapter:
            many: object = guard.many(lambda: _keys_by_file(records, adapter.primary_keys_of))
        else:
            many = _keys_by_file(
                records, lambda some, file: guard.many(lambda own: adapter.primary_keys_of(own, file), some)
            )
        if isinstance(many, list) and len(many) == len(records):
            return many

    def ask(each: tuple[bytes, LogFile]) -> bytes | None:
        try:
            return adapter.primary_key(*each)
        except BadRecord:
            return None

    return guard.each(list(zip(records.records, records.of_file(), strict=True)), ask)


def _keys_by_file(records: Records, ask: Callable[[Sequence[bytes], LogFile], object]) -> object:
    """The keys of all, or what ``ask`` gave in place of them for one of the files."""
    if len(records.files) == 1:
        return ask(records.records, records.files[0])
    keys: list[bytes | None] = [None] * len(records)
    rows_of: dict[int, list[int]] = {}
    for row, number in enumerate(records.file_index.tolist()):
        rows_of.setdefault(number, []).append(row)
    for number, rows in rows_of.items():
        its = ask([records.records[row] for row in rows], records.files[number])
        if not isinstance(its, list) or len(its) != len(rows):
            return its
        for row, key in zip(rows, its, strict=True):
            keys[row] = key
    return keys


class _Memory:
    """Limits by how much this process may grow while user code runs (RLIMIT_DATA), in any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._statm = -1
        self._text = ctypes.create_string_buffer(256)
        self._before = resource.getrlimit(resource.RLIMIT_DATA)

    def limit(self, count: int) -> None:
        """``count``: bytes; 0 means no limit."""
        if not count:
            return
        with self._lock:
            self._inside += 1
            most = self._data_bytes() + count
            soft, hard = self._before
            unlimited = resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_DATA, (most if soft == unlimited else min(most, soft), hard))

    def free(self, count: int) -> None:
        if not count:
            return
        with self._lock:
            self._inside -= 1
            if not self._inside:
                resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def _data_bytes(self) -> int:
        if LIBC.pread(self._statm, self._text, 256, 0) <= 0:  # the first time, or closed by user code
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            os.preadv(self._statm, [self._text], 0)
        return int(self._text.value.split()[5]) * _PAGE


_PAGE = resource.getpagesize()
_MEMORY = _Memory()


class _Alarm:
    """Checks guards once a tick."""

    def watch(self, guard: Watched) -> None:
        raise NotImplementedError

    def forget(self, guard: Watched) -> None:
        raise NotImplementedError


class _Spec(ctypes.Structure):
    _fields_ = (("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2))


class _Event(ctypes.Structure):
    """struct sigevent; the padding makes it as long as the C library's."""

    _fields_ = (
        ("value", ctypes.c_void_p), ("number", ctypes.c_int), ("notify", ctypes.c_int), ("thread", ctypes.c_int),
        ("padding", ctypes.c_char * 48),
    )  # fmt: skip


class _Timer(_Alarm):
    """A POSIX timer of the main thread; Python's own (setitimer) would take SIGALRM from code that uses it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._guard: Watched | None = None
        self._timer = ctypes.c_void_p()
        event = _Event(None, int(SIGNAL), _SIGEV_THREAD_ID, threading.get_native_id())
        if self._libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), "timer_create")
        self._off = _Spec()
        self._specs: dict[float, _Spec] = {}
        signal.signal(SIGNAL, self._ticked)

    def watch(self, guard: Watched) -> None:
        spec = self._specs.get(guard.limit_s)
        if spec is None:
            tick_ns = max(1_000_000, int(guard.limit_s / TICKS * 1e9))
            pair = (ctypes.c_long * 2)(*divmod(tick_ns, 10**9))
            spec = self._specs[guard.limit_s] = _Spec(pair, pair)
        self._guard = guard
        self._libc.timer_settime(self._timer, 0, ctypes.byref(spec), None)

    def forget(self, guard: Watched) -> None:
        self._guard = None
        self._libc.timer_settime(self._timer, 0, ctypes.byref(self._off), None)

    def _ticked(self, number: int, frame: FrameType | None) -> None:
        guard = self._guard
        if guard is not None and guard.is_late():
            guard.note(frame)
            raise Hung


class _Watcher(_Alarm):
    """Looks at guards of other threads from a thread of its own, which ends when there is nothing to watch."""

    def __init__(self) -> None:
        self._guards: dict[int, Watched] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, guard: Watched) -> None:
        with self._lock:
            self._guards[threading.get_ident()] = guard
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="adapter-watch", daemon=True)
                self._thread.start()

    def forget(self, guard: Watched) -> None:
        own = threading.get_ident()
        with guard.lock:
            self._guards.pop(own, None)
            if guard.fired:
                guard.fired = False
                # What is on its way comes now. Taken back it would leave a mark in the interpreter, and CPython 3.11
                # goes round for ever at the next call under a profiler or debugger.
                with suppress(Hung):
                    _raise_in(own, Hung)
                    while True:
                        pass

    def _run(self) -> None:
        idle = 0
        pause = threading.Event()
        while True:
            with self._lock:
                watched = list(self._guards.items())
                idle = 0 if watched else idle + 1
                if idle > IDLE_TICKS:
                    self._thread = None
                    return
            pause.wait(min((guard.limit_s for _, guard in watched), default=1.0) / TICKS)
            for thread, guard in watched:
                with guard.lock:
                    if self._guards.get(thread) is guard and guard.is_late():
                        guard.note(sys._current_frames().get(thread))
                        guard.fired = True
                        _raise_in(thread, Hung)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


IDLE_TICKS = 40
"""After so many ticks without work the watching thread ends."""
_MAIN = threading.main_thread().ident
_WATCHER = _Watcher()
_timers: list[_Timer] = []


_inside: set[int] = set()  # threads that are in user code
_forked: list[bool] = []  # not empty in a process that user code forked


def _after_fork() -> None:
    _timers.clear()  # not inherited: none of ours forks, Spark's daemon does
    if threading.get_ident() in _inside:
        _forked.append(True)


os.register_at_fork(after_in_child=_after_fork)


def _main_alarm() -> _Timer:
    if not _timers:
        _timers.append(_Timer())
    return _timers[0]
