"""Time as an interval, and the kernel's statements about it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config import kernel_time as asked
from photon.config.interval_clock import ASK_SECONDS, IntervalClock, KernelTime, interval
from tests.kit.clock import ManualClock

S = 5_000_000_000
KERNELS = st.none() | st.builds(KernelTime, st.booleans(), st.integers(0, 16 * 10**9))


@given(st.integers(-(2**62), 2**62), KERNELS)
def test_the_interval_is_around_the_reading_and_its_width_is_the_kernels_or_s(
    now_ns: int, kernel: KernelTime | None
) -> None:
    read = interval(now_ns, kernel, S)
    assert (read.earliest_ns + read.latest_ns) // 2 == read.now_ns == now_ns
    known = kernel is not None and kernel.synchronised
    assert read.synchronised == known
    assert read.error_ns == (kernel.max_error_ns if kernel is not None and known else S)


def test_the_kernel_is_asked_once_a_second() -> None:
    clock, said, questions = ManualClock(1_000 * S), [KernelTime(True, 7)], 0

    def kernel() -> KernelTime:
        nonlocal questions
        questions += 1
        return said[0]

    time = IntervalClock(clock, S, kernel)
    assert [time.read().error_ns for _ in range(3)] == [7, 7, 7]
    said[0] = KernelTime(False, 7)
    assert time.read().synchronised
    clock.passes(ASK_SECONDS)
    clock.ns += 1
    assert time.read() == interval(clock.ns, None, S)
    assert questions == 2


def test_a_machine_that_says_nothing_is_taken_to_be_within_s() -> None:
    read = IntervalClock(ManualClock(1_000 * S), S).read()
    assert (read.synchronised, read.latest_ns - read.earliest_ns) == (False, 2 * S)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="adjtimex is Linux's")
def test_this_kernel_answers_and_its_answer_makes_sense() -> None:
    said = asked.kernel_time()
    assert said is not None
    assert 0 <= said.max_error_ns <= 3600 * 10**9
    if said.synchronised:
        assert said.max_error_ns < 17 * 10**9  # beyond 16 s the kernel itself calls the clock unsynchronised


class _Kernel:
    """adjtimex with chosen answers."""

    def __init__(self, state: int, status: int, maxerror: int) -> None:
        self._state, self._status, self._maxerror = state, status, maxerror

    def __call__(self, pointer: object) -> int:
        said = pointer._obj  # type: ignore[attr-defined]
        assert said.modes == 0
        said.status, said.maxerror = self._status, self._maxerror
        return self._state


@pytest.mark.parametrize(
    ("state", "status", "maxerror", "expected"),
    [
        (0, 0x2001, 31_500, KernelTime(True, 31_500_000)),
        (0, 0x2001, -1, KernelTime(True, 0)),
        (0, 0x2001 | asked.STA_UNSYNC, 100, KernelTime(False, 100_000)),
        (5, 0x2001, 100, KernelTime(False, 100_000)),
        (-1, 0, 0, None),
    ],
)
def test_what_the_kernel_may_answer(
    monkeypatch: pytest.MonkeyPatch, state: int, status: int, maxerror: int, expected: KernelTime | None
) -> None:
    monkeypatch.setattr(asked, "_adjtimex", lambda: _Kernel(state, status, maxerror))
    assert asked.kernel_time() == expected


def test_a_system_without_adjtimex_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "_adjtimex", lambda: None)
    assert asked.kernel_time() is None
