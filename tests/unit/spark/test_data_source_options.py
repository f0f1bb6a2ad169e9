"""The data source's decisions without Spark: columns that are pulled up, event times, offsets."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from photon.config.errors import UsageError
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.spark.data_source_options import (
    OffsetUnreadable,
    PayloadColumn,
    TimeRange,
    bounded,
    decoded,
    encoded,
    furthest,
    parse_columns,
    parsed,
)
from photon.spark.outputs import RangeWork


def test_columns_are_parsed() -> None:
    text = "user string from foreign.user.id, price double from primary.items[0].`unit price`,all string from primary"
    assert parse_columns(text, {}) == [
        PayloadColumn("user", "string", "foreign", ("user", "id")),
        PayloadColumn("price", "double", "primary", ("items", 0, "unit price")),
        PayloadColumn("all", "string", "primary", ()),
    ]
    assert parse_columns("", {}) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("user from foreign.user", "NAME TYPE from"),
        ("user string from record.user", "NAME TYPE from"),
        ("user string from foreign.user price double from primary.p", "NAME TYPE from"),
        ("user date from foreign.user", "the type must be one of string, bigint"),
        ("a string from foreign.a, a string from foreign.b", "another column has this name"),
        ("key string from foreign.a", "another column has this name"),
    ],
)
def test_columns_that_are_none_are_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_columns(text, {"key": ""})


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("string", "foreign.a", "text"),
        ("string", "foreign.n", "7"),
        ("string", "foreign.o", '{"x":[1,2]}'),
        ("bigint", "foreign.n", 7),
        ("bigint", "foreign.f", 2),
        ("bigint", "foreign.big", None),
        ("bigint", "foreign.t", None),
        ("double", "foreign.n", 7.0),
        ("double", "foreign.a", None),
        ("boolean", "foreign.t", True),
        ("boolean", "foreign.n", None),
        ("bigint", "foreign.o.x[1]", 2),
        ("bigint", "foreign.o.x[2]", None),
        ("bigint", "foreign.o[0]", None),
        ("bigint", "foreign.a.b.c", None),
        ("string", "foreign.none", None),
        ("string", "foreign.huge", "1e999"),
    ],
)
def test_values_are_pulled_up(kind: str, path: str, value: object) -> None:
    payload = (
        b'{"a":"text","n":7,"f":2.0,"big":18446744073709551615,"t":true,"o":{"x":[1,2]},"none":null,"huge":1e999}'
    )
    (column,) = parse_columns(f"c {kind} from {path}", {})
    got = column.value(parsed(payload))
    assert (got, type(got)) == (value, type(value))
    assert column.value(parsed(None)) is None
    assert column.value(parsed(b"{")) is None


def test_event_times() -> None:
    assert TimeRange().rows([None, 4]) == [0, 1]
    assert TimeRange(5, 7).rows([4, None, 5, 6, 7]) == [2, 3]
    assert TimeRange(end_ns=5).rows([4, None, 5]) == [0]


def test_files_whose_times_are_known_are_left_out() -> None:
    """Exactly those without any row inside."""
    whole = work("joined", 1, 0, 1)
    of_file = msgspec.structs.replace(whole, first_ns=4, last_ns=6)
    for begin, end in itertools.product((None, *range(2, 9)), repeat=2):
        asked = TimeRange(begin, end)
        if begin is None or end is None or begin < end:
            assert asked.keeps_file(of_file) == bool(asked.rows([4, 5, 6]))
        assert asked.keeps_file(whole)


# -- offsets ------------------------------------------------------------------------------------------------------
JOINED, LATE = OutputLog("s0", "joined"), OutputLog("s0", "late")


def test_offsets_survive_a_checkpoint() -> None:
    offsets = {"east": Cursor({JOINED: Position(3, 700)}), "west": Cursor()}
    assert decoded(encoded(offsets)) == offsets
    with pytest.raises(OffsetUnreadable):
        decoded({"version": 3, "cursors": {}})


def test_offsets_never_move_back() -> None:
    here = Cursor({JOINED: Position(3, 700), LATE: Position(1, 5)})
    assert furthest(here, Cursor({JOINED: Position(3, 600)})) == here
    assert furthest(here, Cursor({JOINED: Position(4, 1)})).positions[JOINED] == Position(4, 1)
    assert furthest(here, Cursor()) == here


def work(kind: str, number: int, start: int, end: int) -> RangeWork:
    name = f"{kind}/s0-{number:06d}.jsonl"
    return RangeWork("east", "s0", name, end, False, False, str(Path("/out") / name), start, end)


def test_a_bound_is_shared_by_the_logs() -> None:
    works = [work("joined", 3, 700, 1000), work("joined", 4, 0, 1000), work("late", 1, 0, 20)]
    start, end = Cursor({JOINED: Position(3, 700)}), Cursor({JOINED: Position(4, 1000), LATE: Position(2, 9)})
    past = Position(2, 9)  # after the last range of a log there is nothing except damage
    assert bounded(start, end, works, 800).positions == {JOINED: Position(4, 100), LATE: past}
    assert bounded(start, end, works, 2600).positions == end.positions
    assert bounded(start, end, [], 1).positions == end.positions
    assert bounded(start, end, works, 1).positions == {JOINED: Position(3, 701), LATE: Position(1, 1)}
    assert bounded(start, start, [], 800) == start
