"""An adapter's exceptions and endless calls count against that record alone, with the file and line."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from photon.adapters.containment import LATE_MAX, Fault, Guard, Hung, Watched
from photon.adapters.contract import Adapter, AdapterError, BadRecord, LogFile
from photon.adapters.loader import load_adapter
from photon.adapters.testkit.first_records import FIRST, FirstRecords

SOURCE = """
from photon.adapters.contract import Adapter
class Mine(Adapter):
    def foreign_header(self, record, file):
        return None
    def primary_key(self, record, file):
        return record
    def foreign_payload(self, record, file):
        while True:
            try:
                pass  # busy
            except Exception:
                pass
    primary_payload = foreign_payload
"""
LIMIT_S = 0.2


@pytest.fixture
def adapter(tmp_path: Path) -> Adapter:
    (tmp_path / "mine.py").write_text(SOURCE)
    made = load_adapter("mine.py:Mine", {}, tmp_path)
    made.time_limit_s = LIMIT_S
    return made


def busy(_: int) -> None:
    while True:
        pass


def asleep(_: int) -> None:
    time.sleep(600)


def locked(_: int) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def receiving(_: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.recv(1)


def backtracking(_: int) -> None:
    re.match(rb"(a+)+$", b"a" * 64 + b"b")


def swallowing(_: int) -> None:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.001)


def answered(guard: Guard, hang: Callable[[int], object]) -> list[object]:
    """Answers for seven records, of which two hang and one raises."""

    def ask(item: int) -> int:
        if item in (2, 6):
            hang(item)
        if item == 3:
            raise BadRecord("no good")
        return item

    return list(guard.each(range(7), ask))


@pytest.mark.parametrize("hang", [busy, asleep, locked, receiving, backtracking, swallowing])
def test_in_the_main_thread_whatever_hangs_is_broken_off(adapter: Adapter, hang: Callable[[int], object]) -> None:
    assert threading.current_thread() is threading.main_thread()
    began = time.monotonic()
    found = answered(Guard(adapter), hang)
    assert [each for each in found if not isinstance(each, Fault)] == [0, 1, 4, 5]
    faults = {at: each for at, each in enumerate(found) if isinstance(each, Fault)}
    assert faults.keys() == {2, 3, 6}
    assert faults[3] == Fault("no good")
    for at in (2, 6):
        assert faults[at].hung
        assert "did not return within 0.2 s (" in faults[at].reason
    assert time.monotonic() - began >= 2 * LIMIT_S


@pytest.mark.parametrize("hang", [busy, swallowing])
def test_in_another_thread_python_code_is_broken_off(adapter: Adapter, hang: Callable[[int], object]) -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(answered(Guard(adapter), hang)))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert [at for at, each in enumerate(found) if isinstance(each, Fault) and each.hung] == [2, 6]
    assert len(found) == 7


def test_each_thread_has_its_own_limit() -> None:
    """One that may take long is not interrupted after another's limit, nor does the other one wait for its ticks."""
    entered, over = threading.Event(), threading.Event()
    hung: list[float] = []

    def within(limit_s: float, call: Callable[[], object]) -> None:
        guard = Watched(SimpleNamespace(time_limit_s=limit_s))
        try:
            with guard:
                call()
        except Hung:
            hung.append(limit_s)
        finally:
            guard.disarm()

    patient = threading.Thread(target=within, args=(600.0, lambda: (entered.set(), over.wait(60))))
    hasty = threading.Thread(target=within, args=(LIMIT_S, lambda: busy(0)))
    patient.start()
    assert entered.wait(60)
    hasty.start()
    hasty.join(60)
    over.set()
    patient.join(60)
    assert hung == [LIMIT_S]


def test_the_line_of_the_adapters_own_file_is_named(adapter: Adapter, tmp_path: Path) -> None:
    (fault,) = Guard(adapter).each([b"x"], lambda record: adapter.foreign_payload(record, None))  # type: ignore[arg-type]
    assert isinstance(fault, Fault)
    named = re.search(r"mine\.py:(\d+)\)$", fault.reason)
    assert named is not None
    assert str(tmp_path) in fault.reason
    assert int(named[1]) in range(9, 14)


def test_slow_records_are_not_late_as_long_as_each_comes_back(adapter: Adapter) -> None:
    found = Guard(adapter).each(range(8), lambda item: time.sleep(LIMIT_S / 3) or item)
    assert found == list(range(8))  # together far longer than the limit


def test_one_call_for_many(adapter: Adapter) -> None:
    guard = Guard(adapter)
    assert guard.many(lambda: 5) == 5
    late = guard.many(lambda: busy(1))
    assert isinstance(late, Fault)
    assert late.hung
    raised = guard.many(lambda: 1 // 0)
    assert isinstance(raised, Fault)
    assert raised.reason.startswith("the adapter raised ZeroDivisionError")


def test_nothing_is_raised_once_the_guard_is_left(adapter: Adapter) -> None:
    """Calls that end about when they are late: the exception comes in time, or never."""
    adapter.time_limit_s = 0.02

    def rounds() -> None:
        guard = Guard(adapter)
        for length in range(60):
            until = time.monotonic() + 0.015 + length / 5000
            while time.monotonic() < until:
                guard.each([until], lambda end: [None for _ in iter(lambda: time.monotonic() < end, False)])
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            pass

    rounds()
    escaped: list[BaseException] = []

    def in_thread() -> None:
        try:
            rounds()
        except Hung as hung:
            escaped.append(hung)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert escaped == []


PROFILED = """
import cProfile, threading
from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter
def hangs(item):
    while True:
        pass
Adapter.time_limit_s, Adapter.__abstractmethods__ = 0.02, frozenset()
found = []
thread = threading.Thread(target=lambda: found.extend(Guard(Adapter({})).each([1], hangs)))
thread.start()
thread.join()
assert found[0].hung
cProfile.Profile().runcall(lambda: None)
"""


KEPT = """
import re, sys, threading
from photon.adapters.containment import Guard
class Mine:
    time_limit_s, crumbs = 0.5, None
def backtracks(item):
    re.match(r"(a+)+b", "a" * 64)
def counts(item):
    sum(range(10**12))
def burns(item):
    sum(range(3_000_000))
def call():
    print(len(Guard(Mine()).each(range(60), {ask})), flush=True)
if {own_thread}:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
else:
    call()
"""


@pytest.mark.parametrize(
    ("ask", "own_thread", "said", "code"),
    [
        ("backtracks", True, "", -signal.SIGXCPU),
        ("counts", True, "", -signal.SIGXCPU),
        ("counts", False, "", -signal.SIGXCPU),
        ("burns", True, "60\n", 0),
        ("burns", False, "60\n", 0),
    ],
)
def test_code_that_keeps_the_interpreter_from_all_threads_ends_the_process(
    ask: str, own_thread: bool, said: str, code: int
) -> None:
    """But records that take long together do not."""
    program = KEPT.format(ask=ask, own_thread=own_thread)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == (said, code), done.stderr


def test_who_profiles_after_a_call_was_ended_goes_on() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROFILED], check=True, timeout=60)


def test_without_a_limit_nothing_is_watched(adapter: Adapter) -> None:
    adapter.time_limit_s = 0.0
    assert Guard(adapter).each([1], lambda item: time.sleep(0.05) or item) == [1]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, SystemExit, Own, Unprintable, StopIteration]
)
def test_each_kind_of_exception_is_the_fault_of_its_record(adapter: Adapter, error: type[BaseException]) -> None:
    def ask(item: int) -> int:
        if item == 1:
            raise error
        return item

    first, fault, last = Guard(adapter).each(range(3), ask)
    assert (first, last) == (0, 2)
    assert isinstance(fault, Fault)
    assert f"raised {error.__name__}" in fault.reason
    assert ("which cannot be printed" in fault.reason) == (error is Unprintable)
    assert isinstance(Guard(adapter).many(lambda: ask(1)), Fault)


def test_ctrl_c_ends_more_than_the_record(adapter: Adapter) -> None:
    def interrupted(_: int) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the test runner may have its own
    try:
        with pytest.raises(KeyboardInterrupt):
            Guard(adapter).each([1], interrupted)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("change", [list.clear, list.reverse])
def test_an_answer_for_lists_that_were_changed_is_not_taken(
    adapter: Adapter, change: Callable[[list[bytes]], None]
) -> None:
    records = [b"a", b"b"]

    def ask(own: list[bytes]) -> list[bytes]:
        change(own)
        return list(own)

    assert isinstance(Guard(adapter).many(ask, records), Fault)
    assert records == [b"a", b"b"]
    assert Guard(adapter).many(list, records) == records


FORKS = """
import os, sys
from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter
Adapter.__abstractmethods__ = frozenset()
assert Guard(Adapter({})).each([1, 2], lambda item: os.fork() and item)
print("here", flush=True)
"""


def test_a_copy_that_user_code_forked_does_not_come_back() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "here\n"


def test_a_recursion_limit_that_is_lowered_costs_no_other_record(adapter: Adapter) -> None:
    def deep(depth: int) -> int:
        return depth and 1 + deep(depth - 1)

    limit = sys.getrecursionlimit()

    def ask(item: int) -> int:
        if item == 1:
            sys.setrecursionlimit(limit - 300)
        return deep(limit - 350)

    found = Guard(adapter).each(range(4), ask)
    assert found == [limit - 350] * 4
    assert sys.getrecursionlimit() == limit


def test_new_records_in_a_row_that_run_out_of_time_end_their_reader(adapter: Adapter) -> None:
    adapter.time_limit_s = 0.02

    def ask(item: str) -> None:
        if item == "slow":
            busy(0)

    few = ["slow"] * (LATE_MAX - 1)
    for items in (few, ["quick", *few], [*few, "quick"], few):  # a quick one is between them
        assert len(Guard(adapter).each(items, ask, ends=True)) == len(items)
        Guard(adapter).each(["quick"], ask, ends=True)
        assert len(Guard(adapter).each(few, ask)) == len(few)  # asked again: they are not new
    Guard(adapter).each(few, ask, ends=True)
    with pytest.raises(AdapterError, match=rf"^Mine: {LATE_MAX} records in a row timed out after 0\.02 s \("):
        Guard(adapter).each(["slow"], ask, ends=True)


def test_few_first_records_are_compared_where_each_takes_long(adapter: Adapter) -> None:
    calls = []

    class Slow(type(adapter)):  # type: ignore[misc]
        def foreign_header(self, record: bytes, file: LogFile) -> None:
            calls.append(record)
            time.sleep(0.6 * LIMIT_S)

    slow = Slow({})
    slow.time_limit_s = LIMIT_S
    FirstRecords(slow, [(n, b"%d" % n) for n in range(FIRST)], LogFile("a.log"))
    assert 1 <= len(calls) <= 2
