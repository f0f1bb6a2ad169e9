from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from photon.config.back_off import BackOff


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_jittered_pause_stays_in_its_bounds(failures: int, drawn: float) -> None:
    back_off = BackOff(first=0.1, most=10.0)
    pause = back_off.delay(failures, lambda: drawn)
    assert back_off.floor <= pause <= min(10.0, 0.1 * 2.0 ** min(failures - 1, 50))


def test_pauses_double_up_to_the_longest() -> None:
    assert list(islice(BackOff(first=1.0, most=5.0).pauses(), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert list(islice(BackOff(first=1.0, most=5.0).pauses(lambda: 0.5), 4)) == [0.5, 1.0, 2.0, 2.5]
