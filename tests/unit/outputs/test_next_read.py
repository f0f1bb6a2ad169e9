"""The next thing to read: the core's table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.outputs import Cursor, CursorLost, CursorUnreadable, OutputFile, OutputLog, Position, SlotOutput, end_of
from photon.outputs.next_read import next_read
from tests.unit.refusals import one_line

PLACE = OutputLog("s0", "joined")


def file(number: int, length: int, *, closed: bool = True) -> OutputFile:
    return OutputFile(f"joined/s0-{number:06d}.jsonl", length, closed, False)


# A number may have been skipped; it is never used later.
GROWING = (file(1, 10), file(4, 20), file(5, 30, closed=False))


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (None, (1, 0, 10)),
        (Position(1, 0), (1, 0, 10)),
        (Position(1, 3), (1, 3, 10)),
        (Position(1, 10), (4, 0, 20)),
        (Position(4, 20), (5, 0, 30)),
        (Position(5, 29), (5, 29, 30)),
        (Position(5, 30), None),
    ],
)
def test_from_file_to_file(at: Position | None, expected: tuple[int, int, int] | None) -> None:
    step = next_read(PLACE, GROWING, at)
    assert (None if step is None else (step.file.number, step.start, step.end)) == expected


def test_a_file_that_is_not_closed_has_no_successor_yet() -> None:
    files = (file(1, 10, closed=False), file(2, 10))
    assert next_read(PLACE, files, Position(1, 10)) is None
    assert next_read(PLACE, (file(1, 0, closed=False), file(2, 10)), None) is None
    assert next_read(PLACE, (), None) is None
    empty = next_read(PLACE, (file(1, 0), file(2, 10)), None)
    assert empty is not None
    assert empty.file.number == 2


@pytest.mark.parametrize(
    ("at", "bounds", "expected"),
    [
        (None, {GROWING[0].name: 4}, (1, 0, 4)),
        (Position(1, 4), {GROWING[0].name: 4}, None),
        (Position(1, 8), {GROWING[0].name: 4}, None),  # read without a bound before
        (Position(1, 10), {GROWING[0].name: 4}, (4, 0, 20)),
        (Position(1, 10), {GROWING[1].name: 0}, None),
        (Position(1, 10), {GROWING[1].name: 99}, (4, 0, 20)),
    ],
)
def test_bounds_hold_back(at: Position | None, bounds: dict[str, int], expected: tuple[int, int, int] | None) -> None:
    step = next_read(PLACE, GROWING, at, bounds)
    assert (None if step is None else (step.file.number, step.start, step.end)) == expected


@pytest.mark.parametrize("at", [Position(1, 11), Position(2, 0), Position(6, 0), Position(0, 1), Position(5, 31)])
def test_where_nothing_is_published(at: Position) -> None:
    with one_line(CursorLost, "another output") as lost:
        next_read(PLACE, GROWING, at)
    assert f"joined file {at.number} of s0 at byte {at.offset}" in str(lost.value)


def test_the_end_of_all() -> None:
    other = (OutputFile("late/s0-000001.jsonl", 5, False, False), OutputFile("late/s0-000002.jsonl", 0, False, False))
    end = end_of([SlotOutput("s0", (*GROWING, *other)), SlotOutput("s1", ())])
    assert end.positions == {PLACE: Position(5, 30), OutputLog("s0", "late"): Position(1, 5)}


NAMES = st.text(min_size=1, max_size=5)
COUNTS = st.integers(0, 2**62)


@given(st.dictionaries(st.builds(OutputLog, NAMES, NAMES), st.builds(Position, COUNTS, COUNTS), max_size=5))
def test_a_cursor_is_a_line(positions: dict[OutputLog, Position]) -> None:
    cursor = Cursor(positions)
    line = cursor.encode()
    assert line.startswith(b'{"photon_cursor":1,')
    assert b"\n" not in line
    assert Cursor.decode(line, "here") == cursor


def test_a_cursor_moves() -> None:
    before = Cursor({PLACE: Position(1, 2)})
    after = before.moved(PLACE, Position(2, 0)).moved(OutputLog("s1", "late"), Position(1, 1))
    assert before == Cursor({PLACE: Position(1, 2)})
    assert after.encode() == b'{"photon_cursor":1,"slots":{"s0":{"joined":[2,0]},"s1":{"late":[1,1]}}}'


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"end", b"[1]", b'{"photon_cursor":1}', b'{"photon_cursor":2,"slots":{}}',
     b'{"photon_cursor":1,"slots":{"s":{"joined":[1,-1]}}}', b'{"photon_cursor":1,"slots":{"s":{"joined":[1]}}}',
     b"\xff"],
)  # fmt: skip
def test_what_is_no_cursor(text: bytes) -> None:
    with one_line(CursorUnreadable, "there: ") as refused:
        Cursor.decode(text, "there")
    assert refused.value.exit_code == 2
