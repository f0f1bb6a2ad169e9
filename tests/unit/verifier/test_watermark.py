"""From samples to watermarks, and late records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from photon.config.clock import NEVER_NS, NS_PER_S
from photon.config.disk import RealDisk
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.log.format import RETIRED_NAME, retired_bytes
from photon.outputs.output_places import PublishedEnd
from photon.outputs.watermarks import Journal, Pair, WatermarkTail
from photon.verifier.watermark import Lateness, Sample, SlotShown, Watermarks
from tests.unit.outputs.helpers import WrittenSlot, lines

LOG = OutputLog("s0", "joined")
FILE = "joined/s0-000001.jsonl"
S = NS_PER_S
WITHIN = 10 * S


@dataclass
class _Asked:
    read_ns: int | None
    moving_ns: int
    oldest_ns: int
    waiting: int
    said_ns: int = 0
    who: str = "its dispatcher"
    why: str = ""

    def before(self, time_ns: int) -> int:
        return self.waiting


def _sample(
    read_s: float | None,
    *,
    moving_s: float | None = None,
    oldest_s: float | None = None,
    slots: Sequence[SlotShown] = (SlotShown("s0", NEVER_NS),),
    at: int = 0,
    waiting: int = 0,
    at_ns: int = 1,
) -> Sample:
    moving = NEVER_NS if moving_s is None else int(moving_s * S)
    oldest = min(moving, NEVER_NS if oldest_s is None else int(oldest_s * S))
    read_ns = None if read_s is None else int(read_s * S)
    return Sample(at_ns, _Asked(read_ns, moving, oldest, waiting), slots, Cursor({LOG: Position(1, at)}))


def _taken(watermarks: Watermarks, sample: Sample) -> Pair:
    pair = watermarks.take(sample)
    watermarks.journaled(pair)
    return pair


def test_the_exact_one_is_the_least_of_all_and_a_whole_step() -> None:
    marks = Watermarks(WITHIN)
    assert _taken(marks, _sample(100.77)).exact_ns == 90.7 * S
    assert _taken(marks, _sample(200, oldest_s=120.55)).exact_ns == 120.5 * S
    assert _taken(marks, _sample(200, moving_s=130)).exact_ns == 130 * S
    shown = (SlotShown("s0", NEVER_NS), SlotShown("s1", 140 * S))
    assert _taken(marks, _sample(200, slots=shown)).exact_ns == 140 * S


def test_it_does_not_go_back_and_who_holds_it_is_named() -> None:
    marks = Watermarks(WITHIN)
    _taken(marks, _sample(100, at=50))
    held = _taken(marks, _sample(200, oldest_s=3, at=20))
    assert (held.exact_ns, held.held_by) == (90 * S, ("events that have no verdict",))
    assert held.cursor.positions[LOG] == Position(1, 50)
    silent = _taken(marks, _sample(300, slots=(SlotShown("s9", None, "is down"),)))
    assert (silent.exact_ns, silent.held_by) == (90 * S, ("slot s9: is down",))
    unread = _taken(marks, _sample(None))
    assert unread.exact_ns == 90 * S
    assert "has not read its logs" in unread.held_by[0]
    still = _taken(marks, _sample(100, at_ns=3600 * S))
    assert still.held_by == ("its dispatcher has not reported since 1970-01-01T00:00:00Z",)
    assert marks.held(7, "nobody is there") == Pair(
        7, 90 * S, held.percentile_ns, 1, unread.cursor, ("nobody is there",)
    )


def test_after_a_start_a_slot_that_may_have_records_of_any_time_lets_nothing_be_said() -> None:
    marks = Watermarks(WITHIN)
    found = (SlotShown("s0", NEVER_NS), SlotShown("s1", -NEVER_NS))
    first = _taken(marks, _sample(100, slots=found))
    assert (first.exact_ns, first.percentile_ns) == (None, None)
    assert first.held_by == ("records that are not published",)
    shown = _taken(marks, _sample(200))
    assert _taken(marks, _sample(300, slots=found)).percentile_ns == shown.percentile_ns == 200 * S


def test_an_event_of_the_oldest_time_there_is_does_not_go_beyond_it() -> None:
    marks = Watermarks(None)
    marks.lateness.add(np.array([10 * S]), 0.0)
    assert -(2**63) < _taken(marks, _sample(100, moving_s=-(2**63 - 2) / S)).percentile_ns < -(2**63) + S


def test_without_a_promise_there_is_only_the_percentile() -> None:
    marks = Watermarks(None)
    pair = _taken(marks, _sample(100, oldest_s=40, waiting=3))
    assert (pair.exact_ns, pair.percentile_ns, pair.waiting) == (None, 100 * S, 3)
    assert "written_within" in pair.held_by[0]
    assert Watermarks(None).held(1, "why") is None


def test_what_is_not_shown_waits_too_and_so_does_what_a_dispatcher_has_forgotten() -> None:
    marks = Watermarks(WITHIN)
    _taken(marks, _sample(100, waiting=2))
    assert _taken(marks, _sample(110, slots=(SlotShown("s0", 90 * S),))).waiting == 1
    assert _taken(marks, _sample(120, slots=(SlotShown("s0", None, "is down"),))).waiting == 1
    assert _taken(marks, _sample(130, waiting=2)).waiting == 2
    assert _taken(marks, _sample(None)).waiting == 2
    assert _taken(marks, _sample(90, waiting=1)).waiting == 2
    assert _taken(marks, _sample(140)).waiting == 0


def test_the_percentile_is_behind_by_the_lateness_of_the_records() -> None:
    for within in (None, WITHIN):
        marks = Watermarks(within)
        _taken(marks, _sample(100))
        times = np.array([100 * S] * 98 + [70 * S] * 2, np.int64)
        marks.published(FILE, range(100), times, 0.0)
        pair = _taken(marks, _sample(200))
        if within is None:
            assert 165 * S <= pair.percentile_ns <= 170 * S  # 30 s, and at most a step of the histogram more
        else:
            assert pair.percentile_ns == pair.exact_ns == 200 * S - WITHIN


def test_lateness_is_that_behind_the_pair_before_a_record_however_late_it_is_looked_at() -> None:
    marks = Watermarks(None, [Pair(0, None, 0, 0, Cursor())])
    marks.published(FILE, range(100), np.array([-500 * S] * 100, np.int64), 0.0)  # nobody knows what held then
    _taken(marks, _sample(100, at=10))
    _taken(marks, _sample(200, at=110))
    times = np.array([0] * 10 + [100 * S] * 98 + [70 * S] * 2 + [200 * S] * 40, np.int64)
    marks.published(FILE, range(150), times, 0.0)
    assert 265 * S <= _taken(marks, _sample(300, at=150)).percentile_ns <= 270 * S


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_so_late_or_less_is_that_share(late_s: list[float], share: float) -> None:
    lateness = Lateness()
    late_ns = np.array([int(each * S) for each in late_s], np.int64)
    lateness.add(late_ns, 1.0)
    found_s = lateness.quantile_s(share)
    assert np.count_nonzero(late_ns <= (found_s + 1e-6) * (1 + 1e-9) * S + 1) >= share * len(late_s) - 1e-6
    exact = sorted(late_s)[max(0, int(np.ceil(share * len(late_s) - 1e-9)) - 1)]
    assert found_s <= (exact + 1) * 2 ** (1 / 8) - 1 + 1e-6


def test_lateness_is_forgotten() -> None:
    lateness = Lateness()
    assert lateness.quantile_s() == 0.0
    lateness.add(np.array([500 * S] * 100, np.int64), 0.0)
    assert lateness.quantile_s() > 490
    lateness.add(np.array([-S] * 1000, np.int64), 600.0)
    assert lateness.quantile_s() == 0.0


def test_what_stands_behind_a_pair_and_is_older_is_late_and_counted_once() -> None:
    marks = Watermarks(0)
    _taken(marks, _sample(100, at=50))
    _taken(marks, _sample(200, at=80))
    times = np.array([99 * S, 99 * S, 150 * S, 150 * S], np.int64)
    late = marks.published(FILE, [40, 60, 70, 90], times, 0.0)
    assert (late.file, late.records, late.oldest_ns, late.end) == (FILE, 2, 99 * S, 91)
    marks.count(late)
    assert marks.published(FILE, [40, 60, 70, 90], times, 0.0) is None
    assert marks.late_records == 2
    again = Watermarks(0, [*marks._pairs], [late])
    assert again.late_records == 2
    assert again.published(FILE, [60, 90], np.array([99 * S, 150 * S], np.int64), 0.0) is None
    assert again.published("joined/s0-000002.jsonl", [0], np.array([150 * S], np.int64), 0.0).records == 1
    assert again.published("joined/s0-000000.jsonl", [0], np.array([S], np.int64), 0.0) is None
    assert again.published(FILE, [], np.zeros(0, np.int64), 0.0) is None


def test_a_slot_retired_with_less_than_it_showed_lets_readers_have_watermarks(tmp_path: Path) -> None:
    """Its disk was lost, and the copy had not followed."""
    slot, state = WrittenSlot(tmp_path), tmp_path / "state"
    slot.append(1, lines(0, 10))
    end, marks, journal = PublishedEnd(RealDisk(), state / "slots"), Watermarks(0), Journal(RealDisk(), state)

    def sampled(at_s: int) -> Position:
        cursor, retired = end.look()
        pair = _taken(marks, replace(_sample(at_s, slots=()), cursor=cursor, retired=retired))
        journal.add(pair)
        return pair.cursor.positions[LOG]

    shown, sealed = sampled(100), Position(1, len(lines(0, 6)))
    (slot.state / RETIRED_NAME).write_bytes(retired_bytes("s0", {slot.name(1): sealed.offset}))
    assert sampled(200) == sampled(300) == sealed < shown
    journal.close()
    for at in (sealed, shown):
        tail = WatermarkTail(RealDisk(), state, ("joined",))
        assert tail.moved(Cursor({LOG: at})).exact_ns == 300 * S


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-30, 30)), max_size=12),
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=12, unique_by=lambda each: each[0]
    ),
)
@example([(5, 50), (5, 50), (5, 10), (5, 10), (5, -60)], [(55, 3), (70, 12)])
def test_late_is_what_some_pair_says(moves: list[tuple[int, int]], lines: list[tuple[int, int]]) -> None:
    marks = Watermarks(0)
    pairs, read, at = [], 0, 0
    for on, further in moves:
        read, at = read + on, max(0, at + further)
        pairs.append(_taken(marks, replace(_sample(read, at=at), retired={"s0"} if further < 0 else ())))
    lines.sort()
    offsets, times = [offset for offset, _ in lines], np.array([time * S for _, time in lines], np.int64)
    truth = sum(
        any(p.cursor.positions[LOG].offset <= offset and time * S < (p.exact_ns or 0) for p in pairs)
        for offset, time in lines
    )
    late = marks.published(FILE, offsets, times, 0.0)
    assert (late.records if late else 0) == truth
