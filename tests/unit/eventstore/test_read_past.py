"""The primary logs' read position is stated by the wall clock, and its age by a clock that nothing sets."""

from __future__ import annotations

from pathlib import Path

from tests.kit.clock import ManualClock
from tests.unit.eventstore.helpers import Filled

S = 10**9


class Jumping(ManualClock):
    """Its wall clock is wrong by an offset."""

    wrong_ns = 0

    def now_ns(self) -> int:
        return self.ns + self.wrong_ns


def test_a_clock_that_jumps_makes_no_reading_younger(filled: Filled) -> None:
    store = filled()
    clock = store.clock = store.reader.clock = Jumping(100 * S)
    store.write("a.log", b"k1,x\n")
    store.read_all()
    assert store.reader.read_past == (100 * S, 100.0)
    clock.ns, clock.wrong_ns = 130 * S, 60 * S
    assert store.reader.read_past == (100 * S, 100.0), "nothing was read since"
    store.write("a.log", b"k2,y\n")
    store.read_all()
    assert store.reader.read_past == (190 * S, 130.0)


def test_while_a_backlog_is_read_the_place_and_its_age_stay(filled: Filled) -> None:
    store = filled()
    store.clock.ns = 100 * S
    store.read_all()
    store.write("a.log", b"k1,%b\n" % (b"x" * 996) * 12_000)  # more than one step takes
    store.clock.ns = 200 * S
    assert store.reader.step()
    assert store.reader.read_past == (100 * S, 100.0)
    store.clock.ns = 250 * S
    store.read_all()
    assert store.reader.read_past[0] in (200 * S, 250 * S)
    assert store.reader.read_past[0] == int(store.reader.read_past[1] * S)


def test_a_link_that_may_not_be_followed_holds_it_up(filled: Filled, tmp_path: Path) -> None:
    store = filled()
    store.clock.ns = 100 * S
    store.read_all()
    (tmp_path / "far.log").write_bytes(b"k1,x\n")
    link = store.logs / "link.log"
    link.symlink_to(tmp_path / "far.log")
    store.clock.ns = 200 * S
    store.read_all()
    assert store.reader.read_past == (100 * S, 100.0)
    link.unlink()
    store.read_all()
    assert store.reader.read_past == (200 * S, 200.0)
