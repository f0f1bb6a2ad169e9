"""Confines an adapter's failure to the event it was called for: catches exceptions, and interrupts calls that hang.

``Guard`` watches calls for progress: its owner increments a counter before each record, and that is the only cost on
the hot path. Which thread checks the counter depends on the thread that is watched:

- The main thread (dispatchers, joiners): a POSIX timer that runs only while adapters are called sends SIGURG, which
  nothing else uses and which is ignored by default. Its handler raises ``Hung`` in the middle of Python code, of a
  blocking call (it is interrupted), and of a regular expression (which checks for signals although it keeps the
  interpreter's lock, so no other thread could stop it).
- Any other thread (reading primary logs): a watching thread raises ``Hung`` there asynchronously. That ends Python
  code; a blocking call has to return by itself first.

The process ends if the code catches ``Hung`` and continues. It also ends if the code keeps the interpreter's lock, as
a regular expression does outside the main thread: the kernel kills the process once that thread has used
``LAST_TIMES`` times the limit in processor time without a tick. ``crumbs`` tell the next process which record did it.
C code that waits and keeps the interpreter's lock cannot be stopped. Ticks are counted, not seconds: a process that
was suspended for a minute sees one. Tests of these guarantees: ``tests/unit/adapters/test_containment.py``.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
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
from photon.adapters.crumbs import LAST_SIGNAL, LIBC, Crumbs, CrumbsBusy, digest_of, predecessor
from photon.adapters.faults import describe, is_interrupt, is_own
from photon.batch.records import Records
from photon.config.disk import Disk

TICKS = 4  # ticks without progress that make a time-out, at most a quarter after the limit
SIGNAL = signal.SIGURG
LAST_TIMES = 2.0  # the limit of one call; ticks restart it
LAST_LEAST_S = 1.0  # a busy machine may delay a tick
SWALLOWED_MAX = 2  # times an adapter may catch ``Hung`` and continue; then the process ends
LATE_MAX = 20  # consecutive time-outs after which the adapter's reader ends
ENDED_EXIT = 70
_SIGEV_SIGNAL, _SIGEV_THREAD_ID = 0, 4
_CLOCK_MONOTONIC, _CLOCK_THREAD_CPUTIME = 1, 3
_T = TypeVar("_T")
_R = TypeVar("_R")


class Hung(BaseException):
    """Raised inside an adapter's code. Not an Exception, so that ``except Exception`` does not catch it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Replaces an answer that the adapter failed to give. ``reason``: one line with the adapter's file and line."""

    reason: str
    hung: bool = False  # or out of memory; repeated a few times
    retry: bool = False  # repeated until there is an answer


class HasTimeLimit(Protocol):
    @property
    def time_limit_s(self) -> float:
        """Seconds for one call; 0 means no limit."""


class Watched:
    """A section of user code, interrupted by ``Hung`` if it does not return within ``limit_s`` seconds.

    For one thread at a time; not re-entrant. ``owner``: the user's object. ``where``: the line that was interrupted.
    """

    def __init__(self, owner: HasTimeLimit) -> None:
        self.limit_s = owner.time_limit_s
        self.count = 0
        self.where = ""
        self.fired = False
        self.lock = threading.Lock()
        self.tick_at = 0.0  # of the watcher's clock
        self._owner = owner
        self._depth = sys.getrecursionlimit()
        self._was_lowered = False
        self._raised = 0
        self._seen = -1
        self._ticks = 0
        self._armed = False
        self._alarm = _main_alarm() if threading.get_ident() == _MAIN else _WATCHER
        self._last = _last_of_thread()
        self._last_s = max(LAST_LEAST_S, LAST_TIMES * self.limit_s)

    def __enter__(self) -> None:
        _inside.add(threading.get_ident())
        if self.limit_s > 0:
            self._seen, self._ticks, self._raised, self.fired = -1, 0, 0, False
            self._armed = True
            self._last.set(self._last_s)
            self._alarm.watch(self)

    def __exit__(self, *error: object) -> None:
        self.disarm()
        self._was_lowered = sys.getrecursionlimit() != self._depth
        if self._was_lowered:
            sys.setrecursionlimit(self._depth)
        _inside.discard(threading.get_ident())
        if _forked:  # user code forked, and both processes return here: only one may continue
            os._exit(0)

    def disarm(self) -> None:
        """Stops watching: nothing is raised from now on. Idempotent."""
        if self.limit_s > 0:
            self._alarm.forget(self)
            self._last.set(0.0)
            self._armed = False

    def is_late(self) -> bool:
        """Called each tick: True if the current record has used up its time."""
        if not self._armed:
            return False
        self._last.set(self._last_s)
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
        """Ends the process: the code caught ``Hung`` more than once and continued."""

    def note(self, frame: FrameType | None) -> None:
        innermost, own = frame, None
        while frame is not None and own is None:
            own = frame if is_own(frame, self._owner) else None
            frame = frame.f_back
        at = own or innermost
        self.where = "" if at is None else f" ({at.f_code.co_filename}:{at.f_lineno})"


class Guard(Watched):
    """Calls an adapter for the records of one batch."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self.adapter = adapter
        self._crumbs = adapter.crumbs
        self._slot = -1
        self._careful = False
        self._harmed = ""

    def each(self, items: Sequence[_T], ask: Callable[[_T], _R], *, ends: bool = False) -> list[_R | Fault]:
        """Returns the answer or the fault for each item.

        ``ends``: the records are new; raises AdapterError when LATE_MAX of them in a row have timed out.
        """
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
            except BaseException as error:  # any kind of error affects this record only
                self.disarm()
                if is_interrupt(error):
                    raise
                if isinstance(error, RecursionError) and self._was_lowered and excused != at:
                    excused = at  # because an earlier record has lowered the limit
                elif len(out) < len(items):
                    out.append(self._fault(error))
        if ends and last_late < len(items) - 1:
            self.adapter.late_in_a_row = 0
        return out

    def _note_late(self, *, in_a_row: bool) -> None:
        adapter = self.adapter
        adapter.late_in_a_row = adapter.late_in_a_row + 1 if in_a_row else 1
        if adapter.late_in_a_row >= LATE_MAX:
            what = f"{LATE_MAX} records in a row timed out after {self.limit_s:g} s{self.where}"
            raise AdapterError(what, type(adapter).__name__, "make it faster, or raise limits.adapter_timeout")

    def many(
        self, ask: Callable[..., _R], *columns: Sequence[object], cut: Callable[[], Iterable[object]] | None = None
    ) -> _R | Fault:
        """Calls ``ask`` once for all records, with copies of ``columns``.

        If the adapter changes the copies, its answer is discarded, because its order may differ. ``cut`` returns the
        records if no column holds them. A fault does not tell which record caused it; ``each`` does.
        """
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
                _say_once(f"{type(self.adapter).__name__} must not change the lists that are passed to it")
                return Fault("the adapter changed the lists that were passed to it")
        return answer

    def _fault(self, error: BaseException) -> Fault:
        # A single shortage of memory on the machine, or a slow moment, must not cost a record.
        short = isinstance(error, MemoryError)
        return Fault(describe(error, self.adapter), hung=short, retry=isinstance(error, Retry))

    def _may_run(self, columns: Sequence[Sequence[object]], cut: Callable[[], Iterable[object]] | None) -> bool:
        """True unless the batch may hold a record that kills the process."""
        crumbs = self._crumbs
        if crumbs is None or not (crumbs.suspicious or crumbs.poison):
            return True
        records = zip(*columns, strict=True) if cut is None else cut()
        return not crumbs.suspicious and crumbs.poison.keys().isdisjoint(map(digest_of, records))

    def _noting(self, ask: Callable[[_T], _R]) -> Callable[[_T], _R | Fault]:
        """Wraps ``ask``: refuses records on the poison list, and notes each record while crumbs are suspicious."""
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
        """Ends the process if user code has damaged its open files."""
        if not self._harmed and (harm := crumbs.harm()):
            crumbs.blame(harm)
            os._exit(ENDED_EXIT)

    def _give_up(self) -> None:
        if self._crumbs is not None:
            self._crumbs.blame(
                f"the adapter did not return within {self.limit_s:g} s, and catches the exception that stops it"
            )
            os._exit(ENDED_EXIT)

    def _late(self) -> Fault:
        reason = f"the adapter did not return within {self.limit_s:g} s{self.where}"
        _say(reason)
        return Fault(reason, hung=True)


def _say(line: str) -> None:
    from photon.config.structured import get_logger  # Spark's workers import this module and do not log

    get_logger(__name__).warning(line)


_say_once = lru_cache(maxsize=64)(_say)


def keep_crumbs(adapter: Adapter, directory: Path, disk: Disk) -> Adapter:
    """Makes an adapter that is user code keep crumbs in ``directory``, and returns it.

    If a record kills the process, only that record is then lost.
    """
    if type(adapter) is not ConfiguredAdapter:
        try:
            adapter.crumbs = Crumbs(directory, disk, predecessor())
        except CrumbsBusy:  # a second process on the same state is refused later
            adapter.crumbs = None
    return adapter


def primary_keys_of(guard: Guard, records: Records) -> Sequence[bytes | Fault | None]:
    """Returns each record's key, or ``None`` for a bad record.

    Asks the adapter for all of a file's keys in one call if it supports that; otherwise, or if that fails, for one
    key at a time.
    """
    adapter = guard.adapter
    if adapter.defines("primary_keys_of"):
        if type(adapter) is ConfiguredAdapter:
            alike = len({file.header for file in records.files}) == 1  # its formats know no more of a file
            many: object = guard.many(
                lambda: (
                    adapter.primary_keys_of(records.records, records.files[0])
                    if alike
                    else _keys_by_file(records, adapter.primary_keys_of)
                )
            )
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
    """Returns all keys, or the failure that ``ask`` returned for one of the files."""
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
    """Limits the growth of this process while user code runs (RLIMIT_DATA), in any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._statm = -1
        self._text = ctypes.create_string_buffer(256)
        self._before = resource.getrlimit(resource.RLIMIT_DATA)

    def limit(self, count: int) -> None:
        """Limits the memory that user code may add to ``count`` bytes; 0 means no limit."""
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
        if LIBC.pread(self._statm, self._text, 256, 0) <= 0:  # the first time, or after user code closed it
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


class _PosixTimer:
    """A timer of the kernel; Python's own (setitimer) would take SIGALRM from code that uses it."""

    def __init__(self, clock: int, event: _Event) -> None:
        self._timer = ctypes.c_void_p()
        if LIBC.timer_create(clock, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), "timer_create")
        self._specs = {0.0: _Spec()}

    def set(self, every_s: float) -> None:
        """Sets the timer; 0 disables it."""
        spec = self._specs.get(every_s)
        if spec is None:
            pair = (ctypes.c_long * 2)(*divmod(max(1_000_000, int(every_s * 1e9)), 10**9))
            spec = self._specs[every_s] = _Spec(pair, pair)
        LIBC.timer_settime(self._timer, 0, ctypes.byref(spec), None)

    def __del__(self) -> None:
        LIBC.timer_delete(self._timer)


def _last_of_thread() -> _PosixTimer:
    """Returns the calling thread's timer, which kills the process when that thread has used up its processor time."""
    timer: _PosixTimer | None = getattr(_last, "timer", None)
    if timer is None:
        event = _Event(None, int(LAST_SIGNAL), _SIGEV_SIGNAL)
        timer = _last.timer = _PosixTimer(_CLOCK_THREAD_CPUTIME, event)
    return timer


class _Timer(_Alarm):
    """Checks the main thread's guard, each time a signal arrives from a timer."""

    def __init__(self) -> None:
        self._guard: Watched | None = None
        event = _Event(None, int(SIGNAL), _SIGEV_THREAD_ID, threading.get_native_id())
        self._timer = _PosixTimer(_CLOCK_MONOTONIC, event)
        signal.signal(SIGNAL, self._ticked)

    def watch(self, guard: Watched) -> None:
        self._guard = guard
        self._timer.set(guard.limit_s / TICKS)

    def forget(self, guard: Watched) -> None:
        self._guard = None
        self._timer.set(0.0)

    def _ticked(self, number: int, frame: FrameType | None) -> None:
        guard = self._guard
        if guard is not None and guard.is_late():
            guard.note(frame)
            raise Hung


class _Watcher(_Alarm):
    """Checks the guards of all other threads, from a thread that ends when there is nothing to watch.

    Guards may have different limits: each has ticks of its own.
    """

    def __init__(self) -> None:
        self._guards: dict[int, Watched] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._next_at = 0.0  # when the thread wakes by itself
        self._earlier = threading.Event()  # a guard has a tick before that

    def watch(self, guard: Watched) -> None:
        guard.tick_at = time.monotonic() + guard.limit_s / TICKS
        with self._lock:
            self._guards[threading.get_ident()] = guard
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="adapter-watch", daemon=True)
                self._thread.start()
            elif guard.tick_at < self._next_at:
                self._earlier.set()

    def forget(self, guard: Watched) -> None:
        own = threading.get_ident()
        with guard.lock:
            self._guards.pop(own, None)
            if guard.fired:
                guard.fired = False
                # Wait for exceptions already in flight. Cancelling one would leave a mark in the interpreter, and
                # CPython 3.11 loops endlessly at the next call under a profiler or debugger.
                with suppress(Hung):
                    _raise_in(own, Hung)
                    while True:
                        pass

    def _run(self) -> None:
        idle = 0
        while True:
            with self._lock:
                watched, now = list(self._guards.items()), time.monotonic()
                idle = 0 if watched else idle + 1
                if idle > IDLE_TICKS:
                    self._thread = None
                    return
                self._next_at = min((guard.tick_at for _, guard in watched), default=now + IDLE_S)
                self._earlier.clear()
            if self._earlier.wait(max(0.0, self._next_at - now)):
                continue
            now = time.monotonic()
            for thread, guard in watched:
                if guard.tick_at > now:
                    continue
                # From now on: of a process that stood still only one tick has passed.
                guard.tick_at = now + guard.limit_s / TICKS
                with guard.lock:
                    if self._guards.get(thread) is guard and guard.is_late():
                        guard.note(sys._current_frames().get(thread))
                        guard.fired = True
                        _raise_in(thread, Hung)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


IDLE_S, IDLE_TICKS = 0.25, 40  # the watching thread ends after this number of ticks without work
_MAIN = threading.main_thread().ident
_WATCHER = _Watcher()
_timers: list[_Timer] = []
_last = threading.local()  # each thread's _PosixTimer


_inside: set[int] = set()  # threads that are in user code
_forked: list[bool] = []  # not empty in a process that user code forked


def _after_fork() -> None:
    _timers.clear()  # not inherited: we never fork, but Spark's daemon does
    _last.__dict__.clear()
    if threading.get_ident() in _inside:
        _forked.append(True)


os.register_at_fork(after_in_child=_after_fork)


def _main_alarm() -> _Timer:
    if not _timers:
        _timers.append(_Timer())
    return _timers[0]
