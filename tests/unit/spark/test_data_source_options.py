"""What the data source decides without Spark: columns that are pulled up, filters, offsets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from photon.config.errors import UsageError
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.spark.data_source_options import (
    OPERATIONS,
    UNITS_NS,
    OffsetUnreadable,
    PayloadColumn,
    RowFilter,
    bounded,
    decoded,
    encoded,
    furthest,
    keeps_file,
    kept_rows,
    parse_columns,
    parsed,
    understood,
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
        ("user date from foreign.user", "a type is one of string, bigint"),
        ("a string from foreign.a, a string from foreign.b", "there is such a column already"),
        ("key string from foreign.a", "there is such a column already"),
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
    ],
)
def test_values_are_pulled_up(kind: str, path: str, value: object) -> None:
    payload = b'{"a":"text","n":7,"f":2.0,"big":18446744073709551615,"t":true,"o":{"x":[1,2]},"none":null}'
    (column,) = parse_columns(f"c {kind} from {path}", {})
    got = column.value(parsed(payload))
    assert (got, type(got)) == (value, type(value))
    assert column.value(parsed(None)) is None
    assert column.value(parsed(b"{")) is None


def test_filters() -> None:
    hour, kind = understood("GreaterThanOrEqual", ("hour",), 5), understood("In", ("kind",), ("joined", "late"))
    assert hour is not None
    assert kind is not None
    assert kept_rows([hour, kind], {"hour": [4, None, 5, 6], "event_time_ns": [0] * 4}, 4) == [2, 3]
    assert keeps_file([hour, kind], work("late", 1, 0, 1))
    assert not keeps_file([hour, kind], work("filtered", 1, 0, 1))
    assert RowFilter("slot", "LessThan", "b").holds("a")


@pytest.mark.parametrize("column", ["hour", "event_time_ns", "event_time"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_files_whose_times_are_known_are_left_out(column: str, name: str) -> None:
    """Exactly those of which no row would match."""
    unit = UNITS_NS[column]
    whole = work("joined", 1, 0, 1)
    of_file = msgspec.structs.replace(whole, first_ns=4 * unit, last_ns=6 * unit + unit // 2)
    for wanted in range(2, 9):
        value: object = datetime(1970, 1, 1, 0, 0, 0, wanted, UTC) if column == "event_time" else wanted
        asked = understood(name, (column,), (value,) if name == "In" else value)
        assert asked is not None
        assert keeps_file([asked], of_file) == any(asked.holds(each) for each in (4, 5, 6))
        assert keeps_file([asked], whole)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("StringContains", ("kind",), "x"),
        ("EqualTo", ("key",), "x"),
        ("EqualTo", ("hour", "x"), 1),
        ("EqualTo", ("hour",), "1"),
        ("EqualTo", ("hour",), None),
        ("In", ("kind",), ("joined", None)),
        ("EqualTo", ("event_time",), datetime(2026, 1, 1)),
    ],
)
def test_what_is_not_understood_is_left_to_spark(name: str, column: tuple[str, ...], value: object) -> None:
    assert understood(name, column, value) is None


# -- offsets ------------------------------------------------------------------------------------------------------
JOINED, LATE = OutputLog("s0", "joined"), OutputLog("s0", "late")


def test_offsets_survive_a_checkpoint() -> None:
    offsets = {"east": Cursor({JOINED: Position(3, 700)}), "west": Cursor()}
    assert decoded(encoded(offsets)) == offsets
    with pytest.raises(OffsetUnreadable):
        decoded({"version": 2, "cursors": {}})


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
    start = Cursor({JOINED: Position(3, 700)})
    assert bounded(start, works, 800).positions == {JOINED: Position(4, 100), LATE: Position(1, 20)}
    assert bounded(start, works, 1).positions == {JOINED: Position(3, 701), LATE: Position(1, 1)}
    assert bounded(start, [], 800) == start
