"""Typed columns: their values together with ``_rest`` give the record again, for any JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from photon.config.errors import UsageError
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.json_types import (
    FIELDS_MAX,
    NOTHING,
    NULL,
    extended,
    fitter,
    given_fields,
    leaves,
    settled,
    type_of,
    type_of_sample,
    widened,
)
from photon.outputs.typed_columns import REST, LineTypes
from tests.unit.refusals import one_line

names = st.sampled_from(["a", "b", "c", "A", "ä", "_rest", "a_b", ""])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "1", "x", "2026-01-01T00:00:00Z", "\0", "𐀀"])
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))
payloads = st.dictionaries(names, values, max_size=4)


def line(foreign: Any, **more: Any) -> bytes:
    said = {"event_id": "e", "key": "k", "event_time_ns": 1_760_000_000_000_000_001, "foreign": foreign, **more}
    return json.dumps(
        {**said, "source": {"file": "a", "offset": 3}, "joined_at": "2026-01-01T00:00:00.000001Z"}
    ).encode()


def bare(value: Any) -> Any:
    """Without null members: null and absent are equal."""
    if isinstance(value, dict):
        return {name: bare(each) for name, each in value.items() if each is not None}
    return [bare(each) for each in value] if isinstance(value, list) else value


def laid_over(column: Any, rest: Any) -> Any:
    if isinstance(column, dict) and isinstance(rest, dict):
        return column | {name: laid_over(column.get(name), each) for name, each in rest.items()}
    return rest


def values_of(kind: Any, column: Any) -> Any:
    """A column's value as JSON has it: json columns are parsed."""
    if column is None:
        return None
    if isinstance(kind, dict):
        return {name: values_of(each, column.get(name)) for name, each in kind.items()}
    if isinstance(kind, list):
        return [values_of(kind[0], each) for each in column]
    return json.loads(column) if kind == "json" else column


def records_of(types: LineTypes, batch: pa.RecordBatch) -> list[Any]:
    """The payloads ``foreign`` of the rows, rebuilt from columns and rest. Flat columns are combined again."""
    found = []
    kind = types.payloads.get("foreign")
    for row in batch.to_pylist():
        if types.flat:
            made: Any = {}
            for path, _ in leaves(types.payloads):
                value = row["_".join(path)]
                if path == ("foreign",):
                    made = value
                elif value is not None:
                    table = made
                    for part in path[1:-1]:
                        table = table.setdefault(part, {})
                    table[path[-1]] = value
            column = values_of(kind, made)
        else:
            column = None if kind is None else values_of(kind, row["foreign"])
        rest = json.loads(row[REST]) if row[REST] else {}
        found.append(laid_over(column, rest["foreign"]) if "foreign" in rest else column)
    return found


@settings(max_examples=40, deadline=None)
@given(known=st.lists(payloads, max_size=4), new=st.lists(payloads, max_size=4), grows=st.booleans())
@example([{"a": 1 << 70}, {"a": 1}], [{"a": "x"}], True)
@example([{"a": {}}, {"b": []}], [{"a": {"b": 1}}], True)
@example([{"a": [{"b": 1}]}], [{"a": [{"b": 1, "c": 2}, None]}], True)
def test_columns_and_rest_are_the_record_again(known: list[Any], new: list[Any], grows: bool) -> None:
    types = LineTypes()
    types.learn(map(line, known))
    for _ in range(3):
        batch = types.batch("joined", [line(each) for each in [*known, *new]])
        assert batch.schema == types.schema
        assert bare(records_of(types, batch)) == bare([*known, *new])
        if not grows:
            break
        before = {path: kind for path, kind in leaves(types.payloads) if isinstance(kind, str)}
        types.grow()
        assert {path: kind for path, kind in leaves(types.payloads) if path in before} == before, "types stay"


@settings(max_examples=40, deadline=None)
@given(known=st.lists(payloads, min_size=1, max_size=4), new=st.lists(payloads, max_size=4))
def test_flat_columns_have_every_leaf_or_its_rest(known: list[Any], new: list[Any]) -> None:
    types = LineTypes(flat=True)
    types.learn(map(line, known))
    for _ in range(2):
        batch = types.batch("joined", [line(each) for each in [*known, *new]])
        assert len({name.casefold() for name in batch.schema.names}) == len(batch.schema.names)
        for found, meant in zip(records_of(types, batch), [*known, *new], strict=True):
            assert _without_empty(bare(found)) == _without_empty(bare(meant)), "an empty object is absent when flat"
        types.grow()


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {name: _without_empty(each) for name, each in value.items()}
        return {name: each for name, each in inner.items() if each not in ({}, None)}
    return value


@given(st.lists(values, min_size=1, max_size=5))
def test_what_a_type_was_found_of_fits_it(sample: list[Any]) -> None:
    kind: Any = NULL
    for each in sample:
        kind = widened(kind, type_of(each))
    again: Any = NULL
    for each in reversed(sample):
        again = widened(again, type_of(each))
    one, other = (
        [json.dumps(each, sort_keys=True, default=str) for each in leaves(found)] for found in (kind, again)
    )
    assert sorted(one) == sorted(other), "in whatever order"
    if (columns := settled(kind)) is not None and "float" not in str(columns):  # whole numbers may be too fine for it
        fit = fitter(columns)
        for each in sample:
            if each is not None and columns == kind:
                assert fit(each)[1] is NOTHING


def test_the_columns_and_what_duckdb_pandas_and_polars_would_call_them() -> None:
    types = LineTypes()
    types.learn([line({"amount": 1, "user": {"id": "u"}, "tags": ["x"]}), line({"amount": 1.5, "paid": True})])
    batch = types.batch("joined", [line({"amount": 2, "user": {"id": "u"}}, primary={"w": "ä"})])
    assert batch.schema.names == [
        "kind", "event_id", "key", "event_time", "event_time_ns", "foreign", "reason", "record", "source",
        "primary_source", "joined_at", "decided_at", "token", "_rest",
    ]  # fmt: skip
    (row,) = batch.to_pylist()
    assert row["foreign"] == {"amount": 2.0, "user": {"id": "u"}, "tags": None, "paid": None}
    assert json.loads(row["_rest"]) == {"primary": {"w": "ä"}}
    assert (row["event_time"].isoformat(), row["source"]) == ("2025-10-09T08:53:20+00:00", {"file": "a", "offset": 3})
    assert row["joined_at"].microsecond == 1
    assert types.grow() == [("primary.w", "text")]
    flat = LineTypes(types.payloads, flat=True)
    leaves_of = ["foreign_amount", "foreign_user_id", "foreign_tags", "foreign_paid", "primary_w"]
    assert flat.schema.names[5:10] == leaves_of


def test_given_types_read_text_and_what_they_cannot_read_is_kept() -> None:
    some = {"cents": "int", "price": "decimal(6,2)", "at": "time(ms)", "day": "time"}
    assert given_fields({f"foreign.{name}": kind for name, kind in some.items()}) == {"foreign": some}
    types = LineTypes.of_schema({"foreign": {"rate": "float", "ok": "bool", "any": "json", **some}})
    good = {"rate": "1.5", "ok": "true", "any": {"x": [1]}, "cents": "007", "price": "12.50", "at": "1760000000123",
            "day": "2026-01-01T01:00:00+01:00", "more": 1}  # fmt: skip
    bad = {"rate": "1,5", "ok": "yes", "cents": "1.5", "price": "12.505", "at": "now", "day": "1.1.26"}
    first, second = types.batch("joined", [line(good), line(bad)]).to_pylist()
    assert [first["foreign"][name] for name in ("rate", "cents", "price")] == [1.5, 7, Decimal("12.5")]
    assert first["foreign"]["any"] == '{"x":[1]}'
    assert first["foreign"]["at"].isoformat() == "2025-10-09T08:53:20.123000+00:00"
    assert first["foreign"]["day"].hour == 0
    assert json.loads(first["_rest"]) == {"foreign": {"more": 1}}
    assert json.loads(second["_rest"]) == {"foreign": bad}
    assert types.rest == 2
    assert types.grow() == [], "what is given stays"
    told = types.unfit()
    assert sorted(each.partition(" ")[0] for each in told) == sorted(f"foreign.{name}" for name in bad)
    assert (
        'foreign.price is decimal(6,2) in the schema, but "12.505" does not fit: such values are null, and kept in '
        "_rest; correct the schema if they are right"
    ) in told
    assert 'foreign.rate is float in the schema, but "1,5" does not fit (its comma: float(comma)' in "\n".join(told)
    types.batch("joined", [line(bad)])
    assert types.unfit() == [], "once"
    assert types.unfit_counts == dict.fromkeys((f"foreign.{name}" for name in bad), 2)


def test_text_with_a_decimal_comma() -> None:
    types = LineTypes.of_schema({"foreign": {"rate": "float(comma)", "price": "decimal(9,2,comma)"}})
    fit = [("12,5", "1.234,50"), ("-0,25", "1 234 567,5"), ("7", "+7"), ("1'234,5", "12"), (3.5, 4)]
    unfit = ["12.50", "1.23,4", "1,234,5", "1.234 567,8", "1,2e3", ",5", ""]
    rows = types.batch("joined", [line({"rate": rate, "price": price}) for rate, price in fit]).to_pylist()
    assert [row["foreign"]["rate"] for row in rows] == [12.5, -0.25, 7.0, 1234.5, 3.5]
    assert [row["foreign"]["price"] for row in rows] == [Decimal(x) for x in ("1234.5", "1234567.5", "7", "12", "4")]
    rows = types.batch("joined", [line({"rate": rate}) for rate in unfit]).to_pylist()
    assert [json.loads(row["_rest"])["foreign"]["rate"] for row in rows] == unfit
    assert types.unfit() == [
        'foreign.rate is float(comma) in the schema, but "12.50" does not fit (7 values so far): such values are '
        "null, and kept in _rest; correct the schema if they are right"
    ]


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        ("float", "1e999", None),
        ("float", "-1e999", None),
        ("float", "12345678901234567890", None),
        ("float", "+9007199254740993", None),
        ("float", "9007199254740992", 9007199254740992.0),
        ("float", "-007", -7.0),
        ("float", "0.1", 0.1),
        ("decimal(10,2)", "1_000.5", None),
        ("decimal(10,2)", " 5 ", None),
        ("decimal(10,2)", "\u0665", None),
        ("decimal(10,2)", "NaN", None),
        ("decimal(10,2)", "1e99999999999999999999", None),
        ("decimal(10,2)", "1000.5", Decimal("1000.5")),
        ("decimal(10,2)", 1e-2, Decimal("0.01")),
        ("decimal(2,2)", "0", Decimal(0)),
        ("decimal(2,2)", "0.000", Decimal(0)),
        ("decimal(2,2)", "0e5", Decimal(0)),
        ("decimal(2,2)", "1", None),
        ("decimal(2,2)", 0.99, Decimal("0.99")),
        ("time(s)", "1_0", None),
        ("time(s)", " 1", None),
        ("time(s)", "9e999999", None),
        ("time(s)", "1.5", 1_500_000),
    ],
)
def test_numbers_of_given_types_are_what_the_text_says_or_stay(kind: str, value: Any, column: Any) -> None:
    fit = fitter(kind, reads=True)
    assert fit(value) == ((None, value) if column is None else (column, NOTHING))
    types = LineTypes.of_schema({"foreign": {"a": kind}})
    (row,) = types.batch("joined", [line({"a": value})]).to_pylist()
    assert (row["foreign"]["a"] is None) == (column is None)
    assert (row[REST] is None) == (column is not None)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"foreign": {"a": "number"}}, "foreign.a = 'number': not a type; there are bool, int"),
        ({"foreign": {}}, "foreign: has no fields"),
        ({"foreign.a": "int", "foreign.a.b": "int"}, "foreign.a.b is inside a, which is int"),
        ({"foreign.a": "decimal(40,2)"}, "not a type"),
        ({"foreign.a": ["int", "text"]}, "not a type"),
        ({"foreign.a": None}, "not a type"),
    ],
)
def test_a_wrong_schema_is_one_line(schema: dict[str, Any], said: str) -> None:
    with one_line(UsageError, said):
        given_fields(schema)


def test_what_no_parser_takes_is_kept_as_it_stands() -> None:
    types = LineTypes()
    odd = b'{"event_id":"e","key":"k","event_time_ns":1,"foreign":{"a":[1e999]},"primary":{"b":1e400},"token":"0a"}'
    types.learn([odd, line({"a": "x"})])
    (row,) = types.batch("joined", [odd]).to_pylist()
    assert row[REST] == '{"foreign":{"a":[1e999]},"primary":{"b":1e400}}'
    assert (row["event_id"], row["token"]) == ("e", "0a")
    for torn in (b"{", b"[]", b'{"a":1'):
        with pytest.raises(LineUnreadable, match="not an output record"):
            types.batch("joined", [torn])


def test_ids_that_are_no_text_and_deep_and_wide_values() -> None:
    types = LineTypes()
    deep: Any = 1
    for _ in range(200):
        deep = {"x": deep}
    wide = {f"k{n}": n for n in range(FIELDS_MAX + 1)}
    said = [line({"wide": wide, "deep": deep}, key_raw_base64="gA==", key=None)]
    types.learn(said)
    (row,) = types.batch("joined", said).to_pylist()
    assert json.loads(row["foreign"]["wide"]) == wide
    assert (row["key"], row["key_raw_base64"], row[REST]) == (None, "gA==", None)
    assert len(list(leaves(types.payloads))) == 3
    assert extended({"a": "int"}, {"A": "text", "b": "int"}) == {"a": "int", "b": "int"}


def test_what_changed_its_type_is_named() -> None:
    types = LineTypes()
    types.learn([line({"a": 1, "b": [1], "c": {"d": "x"}, "e": [{"f": 1}]})])
    types.batch("joined", [line({"a": "n/a", "b": ["x", 1], "c": {"d": 5}, "e": [{"f": 1, "g": 2}]})])
    misfits = [("foreign.a", "int", "text"), ("foreign.b[]", "int", "json"), ("foreign.c.d", "text", "int")]
    assert types.misfits() == misfits
    assert types.grow() == [("foreign.e", [{"f": "int", "g": "int"}])]


def test_what_is_unusual_makes_no_other_type() -> None:
    types = LineTypes()
    types.learn([line({"a": n, "b": {"x": n}, "c": n if n % 2 else "x", "d": n / 2}) for n in range(99)] + [
        line({"a": "n/a", "b": "", "d": 1 << 70})])  # fmt: skip
    assert types.payloads == {"foreign": {"a": "int", "b": {"x": "int"}, "c": "json", "d": "float"}}


@given(st.lists(values, min_size=1, max_size=19), st.randoms())
def test_a_sample_has_one_type_in_whatever_order(sample: list[Any], order: Any) -> None:
    shuffled = order.sample(sample, len(sample))
    one, other = type_of_sample(sample), type_of_sample(shuffled)
    assert sorted(map(str, _places(one))) == sorted(map(str, _places(other)))


def _places(kind: Any) -> list[Any]:
    return sorted((path, str(_places(each[0])) if isinstance(each, list) else each) for path, each in leaves(kind))
