"""Written output that readers are not shown yet."""

from __future__ import annotations

from photon.config.clock import NEVER_NS
from photon.idregistry.witness import WitnessLog
from photon.joiner.unshown import ANY_NS, Unshown, covers


def _end(*places: tuple[int, int]) -> tuple[WitnessLog, ...]:
    return tuple(WitnessLog(number, length) for number, length in places)


def test_a_record_is_shown_once_what_is_shown_covers_its_end() -> None:
    unshown = Unshown()
    unshown.written.append((1, 70))
    unshown.written.append((2, 50))
    assert unshown.oldest_ns == 50
    unshown.synced(1, _end((1, 10)))
    assert unshown.oldest_ns == 50
    unshown.synced(2, _end((1, 20)))
    unshown.shown(_end((1, 10)))
    assert unshown.oldest_ns == 50
    unshown.shown(_end((2, 0)))
    assert unshown.oldest_ns == NEVER_NS


def test_what_was_shown_before_its_sync_was_told_holds_nothing_back() -> None:
    unshown = Unshown()
    unshown.written.append((1, 70))
    unshown.shown(_end((1, 10)))
    unshown.synced(1, _end((1, 10)))
    assert unshown.oldest_ns == NEVER_NS


def test_a_start_holds_all_back_until_what_it_found_is_shown() -> None:
    unshown = Unshown()
    unshown.found(_end((3, 9), (1, 5)), shown=_end((3, 9), (1, 4)))
    assert unshown.oldest_ns == ANY_NS
    unshown.shown(_end((3, 9), (1, 5)))
    assert unshown.oldest_ns == NEVER_NS
    unshown.found(_end((3, 9)), shown=_end((3, 9)))
    assert unshown.oldest_ns == NEVER_NS


def test_an_empty_log_needs_nothing_to_cover_it() -> None:
    assert covers((), _end((1, 0)))
    assert not covers((), _end((1, 1)))
