"""Keepers of copies, the next data to ship, and the amount that may be shown meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.copies import shipping
from photon.joiner.copies.api import EMPTY, CopyAnswer, Status, at_least, held_by_all, keeper_of
from photon.joiner.copies.shipper import LocalFiles, Open, Piece, Ship, Shipper, ShipperLimits, Verify
from photon.joiner.copies.shipping import CannotShip, LocalOutput
from photon.outputs.log.format import DamagedRange

NONE: LocalFiles = ((), (), (), ())


def ends(number: int, length: int) -> Witness:
    return (WitnessLog(number, length, b"h%d" % length if length else b""), *EMPTY[1:])


def ok(at: Witness, status: Status = Status.OK, newest: int = 5) -> CopyAnswer:
    return CopyAnswer(status, newest, at)


def shipper(*, required: bool = False, wait_s: float = 60.0) -> Shipper:
    return Shipper(5, wait_s=wait_s, required=required, now=0.0, limits=ShipperLimits(request_bytes=100))


def local(*files: tuple[int, int]) -> LocalFiles:
    return (files, (), (), ())


def at_work(now: float = 0.0) -> Shipper:
    """A shipper that knows of a copy with 30 bytes of its first file."""
    made = shipper()
    made.opened(ends(1, 30))
    return made


def test_the_copy_is_opened_compared_and_then_shipped_to() -> None:
    one = shipper()
    assert one.next(0.0, local((1, 50)), EMPTY) == Open()
    assert one.next(0.0, local((1, 50)), EMPTY) is None, "one question at a time"
    one.answered(ok(ends(1, 30)), 0.1)
    assert one.next(0.1, local((1, 50)), EMPTY) == Verify(ends(1, 30))
    one.verified(True, 0.2)
    assert one.next(0.2, local((1, 50)), EMPTY) == Ship(ends(1, 30), (Piece(0, 1, 30, 50),), EMPTY)
    one.answered(ok(ends(1, 50)), 0.3, expected=ends(1, 50))
    assert one.next(0.3, local((1, 50)), EMPTY) is None
    assert one.behind(local((1, 50))) == 0


def test_files_go_one_after_the_other_and_no_more_than_a_request_at_once() -> None:
    step = at_work().next(0.0, local((1, 40), (2, 60), (4, 500), (5, 10)), EMPTY)
    assert step.pieces == (Piece(0, 1, 30, 40), Piece(0, 2, 0, 60), Piece(0, 4, 0, 500))


def test_an_answer_that_was_lost_is_made_up_for_by_comparing() -> None:
    one = at_work()
    assert isinstance(one.next(0.0, local((1, 50)), EMPTY), Ship)
    one.answered(None, 0.0)
    assert one.next(0.1, local((1, 50)), EMPTY) is None, "it waits before it asks again"
    assert isinstance(one.next(0.3, local((1, 50)), EMPTY), Ship)
    one.answered(ok(ends(1, 50), Status.ELSEWHERE), 0.4)
    assert one.next(0.4, local((1, 50)), EMPTY) == Verify(ends(1, 50))


def test_a_copy_that_was_set_aside_is_opened_anew() -> None:
    one = at_work()
    one.next(0.0, local((1, 50)), EMPTY)
    one.answered(ok(EMPTY, Status.ELSEWHERE, newest=0), 0.1)
    assert one.next(0.1, local((1, 50)), EMPTY) == Open()


def test_no_more_is_shown_than_both_hold_until_the_wait_is_over() -> None:
    one = at_work()
    files, whole = local((1, 50)), ends(1, 50)
    assert one.bound(0.0, files, whole, ends(1, 20)) == ends(1, 30)
    assert one.bound(59.0, files, whole, ends(1, 30)) == ends(1, 30)
    assert one.bound(60.0, files, whole, ends(1, 30)) == whole
    assert one.fallback
    assert one.bound(61.0, local((1, 60)), ends(1, 60), whole) == ends(1, 60), "until it has caught up"
    one.next(61.0, local((1, 60)), EMPTY)
    one.answered(ok(ends(1, 60)), 61.0, expected=ends(1, 60))
    assert one.bound(61.0, local((1, 60)), ends(1, 60), ends(1, 60)) == ends(1, 60)
    assert not one.fallback
    assert one.bound(62.0, local((1, 90)), ends(1, 90), ends(1, 60)) == ends(1, 60)


def test_a_copy_that_is_required_is_waited_for_for_ever() -> None:
    one = shipper(required=True)
    assert one.bound(1e9, local((1, 50)), ends(1, 50), EMPTY) == EMPTY
    assert not one.fallback


def test_a_newer_incarnation_and_a_seal_end_the_process() -> None:
    for status in (Status.STALE, Status.SEALED):
        one = at_work()
        one.next(0.0, local((1, 50)), EMPTY)
        one.answered(ok(ends(1, 30), status, newest=6), 0.0)
        assert one.ended
        assert one.next(100.0, local((1, 50)), EMPTY) is None


def test_other_bytes_are_an_operators_business() -> None:
    one = shipper()
    one.next(0.0, NONE, EMPTY)
    one.answered(ok(ends(1, 30)), 0.0)
    one.next(0.0, NONE, EMPTY)
    one.verified(False, 0.0)
    assert "the copy differs" in one.trouble
    assert one.next(29.0, NONE, EMPTY) is None
    assert one.next(31.0, NONE, EMPTY) == Open()


def test_what_both_hold_never_goes_back() -> None:
    assert held_by_all(ends(2, 10), ends(1, 50), ends(1, 40)) == ends(1, 50)
    assert held_by_all(ends(1, 50), ends(1, 30), ends(1, 40)) == ends(1, 40)
    assert held_by_all(ends(1, 50), ends(2, 30), ()) == ends(1, 50)


def test_whether_a_copy_has_all_of_a_witness() -> None:
    assert at_least(ends(1, 50), ends(1, 50))
    assert at_least(ends(2, 1), ends(1, 50))
    assert at_least(EMPTY, ())
    assert not at_least(ends(1, 49), ends(1, 50))
    assert not at_least((WitnessLog(1, 50, b"other"), *EMPTY[1:]), ends(1, 50))


@pytest.mark.parametrize(
    ("datacentre", "keepers", "expected"),
    [
        ("east", ["east", "west"], "west"),
        ("west", ["east", "west"], "east"),
        ("a", ["c", "b", "a"], "b"),
        ("c", ["c", "b", "a"], "a"),
        ("b", ["a", "c"], "c"),
        ("z", ["a", "c"], "a"),
        ("a", ["a"], None),
        ("a", [], None),
    ],
)
def test_the_next_in_order_of_names_keeps_it(datacentre: str, keepers: list[str], expected: str | None) -> None:
    assert keeper_of(datacentre, keepers) == expected


def pair(event: str, number: int, of: int) -> bytes:
    return b'{"event_id":"%b","pair":%d,"pairs":%d}\n' % (event.encode(), number, of)


LINES = [pair("a", 1, 1), *(pair("b", at, 3) for at in (1, 2, 3)), b'{"event_id":"c","key":"k"}\n', pair("d", 1, 1)]
EVENTS = [LINES[0], b"".join(LINES[1:4]), LINES[4], LINES[5]]


def output(base: Path, lines: list[bytes]) -> LocalOutput:
    (base / "log").write_bytes(b"".join(lines))
    return LocalOutput(RealDisk(), base, lambda log, number: "log")


@pytest.mark.parametrize("wanted", [1, 50, 100, 150, 1000])
def test_each_part_is_whole_events(tmp_path: Path, wanted: int) -> None:
    local, end, at = output(tmp_path, LINES), sum(map(len, LINES)), 0
    parts = []
    while at < end:
        parts.append(local._lines(0, 1, at, min(wanted, end - at), end))
        at += len(parts[-1])
    starts = {sum(map(len, EVENTS[:n])) for n in range(len(EVENTS) + 1)}
    assert b"".join(parts) == b"".join(LINES)
    assert all(sum(map(len, parts[:n])) in starts for n in range(len(parts)))


def test_an_event_that_no_message_takes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LINE_BYTES_MAX", 60)
    local = output(tmp_path, LINES[1:])
    with pytest.raises(CannotShip, match="no event ends after byte 0"):
        local._lines(0, 1, 0, 10, sum(map(len, LINES[1:])))


def test_a_part_never_begins_within_an_event(tmp_path: Path) -> None:
    local = output(tmp_path, LINES[2:3])
    with pytest.raises(CannotShip, match="no event ends after byte 0"):
        local._lines(0, 1, 0, len(LINES[2]), len(LINES[2]))


def test_a_copy_has_blank_lines_where_the_slot_has_lost_bytes(tmp_path: Path) -> None:
    """So the copy keeps growing, byte for byte like a copy made from the beginning."""
    lost = (len(LINES[0]), len(b"".join(LINES[:4])))
    local, end = output(tmp_path, LINES), sum(map(len, LINES))
    (tmp_path / "log").write_bytes(b"".join([LINES[0], b"#" * (lost[1] - lost[0] - 1), b"\n", *LINES[4:]]))
    expected = LINES[0] + b"\n" * (lost[1] - lost[0]) + b"".join(LINES[4:])
    local.damaged = lambda: [DamagedRange("log", *lost, "", "")]
    for wanted in (1, 50, 1000):
        at, found = 0, b""
        while at < end:
            found += local._lines(0, 1, at, min(wanted, end - at), end)
            at = len(found)
        assert found == expected
