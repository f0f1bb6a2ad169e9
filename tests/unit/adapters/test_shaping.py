"""Shapes: records filtered and skipped, fields derived, hidden and chosen; and that no other byte changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    Filtered,
    Joined,
    LogFile,
    Pairs,
    Payloads,
    Skipped,
)
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.shape import shape_from_table
from photon.adapters.shaping import Shaper, shaped_adapter
from photon.adapters.testkit import Samples, check_adapter
from photon.config.settings import Join

FILE = LogFile("a.log")
KEY = b"0123456789abcdef"


def shaped(table: Mapping[str, Any], foreign: object, primary: object) -> Any:
    """The two payloads as values, or the reason of the filter."""
    sides = [each if isinstance(each, bytes) else orjson.dumps(each) for each in (foreign, primary)]
    result = Shaper(shape_from_table(table, "shape"), "shape", KEY).shaped(Joined(*sides))
    if isinstance(result, Filtered):
        return result.reason
    assert result.foreign is not None
    assert result.primary is not None
    return orjson.loads(result.foreign), orjson.loads(result.primary)


@pytest.mark.parametrize(
    ("condition", "foreign", "holds"),
    [
        ({"equals": "a"}, {"f": "a"}, True),
        ({"equals": "a"}, {"f": "b"}, False),
        ({"equals": "a"}, {}, False),
        ({"equals": ["a", 1]}, {"f": 1}, True),
        ({"equals": 1}, {"f": True}, False),
        ({"equals": True}, {"f": True}, True),
        ({"equals": 200}, {"f": "200"}, True),
        ({"equals": 200}, {"f": "200.0"}, True),
        ({"equals": 200}, {"f": "2_00"}, False),
        ({"equals": "200"}, {"f": 200}, False),
        ({"equals": 2**53 + 1}, {"f": str(2**53)}, False),
        ({"equals": True}, {"f": "True"}, True),
        ({"equals": True}, {"f": "1"}, False),
        ({"differs": 200}, {"f": "200"}, False),
        ({"differs": 200}, {"f": "404"}, True),
        ({"differs": ["a", "b"]}, {"f": "c"}, True),
        ({"differs": "a"}, {"f": "a"}, False),
        ({"differs": "a"}, {}, False),
        ({"matches": "^b.t"}, {"f": "bot/1"}, True),
        ({"matches": "x"}, {"f": "bot"}, False),
        ({"matches": "1"}, {"f": 1}, False),
        ({"above": 5}, {"f": 6}, True),
        ({"above": 5}, {"f": "6"}, True),
        ({"above": 5}, {"f": 5}, False),
        ({"below": 5, "above": 1}, {"f": 3}, True),
        ({"below": 5}, {"f": "x"}, False),
        ({"below": 5}, {"f": True}, False),
        ({"above": 5}, b'{"f":1%0400d}' % 0, True),
        ({"below": 5}, {"f": "9" * 5000}, False),
        ({"above": 5}, {"f": "9" * 5000}, True),
        ({"below": 5}, {"f": [1]}, False),
        ({"missing": True}, {}, True),
        ({"missing": True}, {"f": None}, True),
        ({"missing": True}, {"f": 0}, False),
        ({"missing": False}, {"f": 0}, True),
        ({"missing": False}, {}, False),
    ],
)  # fmt: skip
def test_conditions(condition: Mapping[str, Any], foreign: object, holds: bool) -> None:
    found = shaped({"filter": [{"field": "foreign.f", "reason": "no", **condition}]}, foreign, {})
    assert (found == "no") is holds


def test_a_filter_without_a_reason_says_its_tests() -> None:
    table = {"filter": [{"field": "primary.user.kind", "equals": "bot"}]}
    assert shaped(table, {}, {"user": {"kind": "bot"}}) == "primary.user.kind: equals 'bot'"


def test_derived_fields() -> None:
    table = {
        "derive": [
            {"name": "foreign.host", "from": "foreign.url", "pattern": "//([^/]+)"},
            {"name": "foreign.tier", "from": "primary.plan", "values": {"a": 1, "b": 2}, "default": 0},
            {"name": "primary.place", "text": "{primary.city}/{foreign.n}"},
            {"name": "foreign.copy.of", "from": "primary.deep.x"},
            {"name": "foreign.none", "from": "foreign.nothing"},
            {"name": "foreign.fallback", "from": "foreign.url", "pattern": "ftp:", "default": "-"},
        ]
    }
    foreign = {"url": "https://ex.org/a", "n": 7}
    primary = {"plan": "b", "city": "Köln", "deep": {"x": [1]}}
    assert shaped(table, foreign, primary) == (
        {**foreign, "host": "ex.org", "tier": 2, "copy": {"of": [1]}, "fallback": "-"},
        {**primary, "place": "Köln/7"},
    )
    assert shaped(table, {}, {})[0] == {"tier": 0, "fallback": "-"}


def test_secrets_are_dropped_hashed_or_masked() -> None:
    table = {
        "redact": {
            "primary.mail": "hash", "primary.user.card": "mask", "foreign.token": "drop", "foreign.none": "mask",
        },
        "hash_key_file": "key",
    }  # fmt: skip
    foreign, primary = shaped(
        table, {"token": "s3cret", "a": 1}, {"mail": "a@b.c", "user": {"card": "4111111111111234"}}
    )
    assert foreign == {"a": 1}
    assert primary["user"] == {"card": "****1234"}
    assert len(primary["mail"]) == 32
    assert shaped(table, {}, {"mail": "a@b.c"})[1] == {"mail": primary["mail"]}
    assert shaped(table, {}, {"mail": "a@b.d"})[1] != {"mail": primary["mail"]}
    assert shaped(table, {}, {"user": {"card": "12345678"}})[1] == {"user": {"card": "****"}}
    assert shaped(table, {"token": {"nested": [1]}}, {"user": {"card": 4111111111111234}})[1] == {
        "user": {"card": "****1234"}
    }


def test_what_cannot_be_looked_into_does_not_get_out() -> None:
    shaper = Shaper(shape_from_table({"redact": {"foreign.a": "drop"}}, "shape"), "shape")
    for payloads in (Joined(None, b"{}"), Joined(b"{}", None), Joined(b"[1]", b"{}"), Joined(b"{", b"{}")):
        with pytest.raises(BadRecord, match="cannot be shaped"):
            shaper.shaped(payloads)


def test_fields_are_chosen_and_renamed_in_order() -> None:
    table = {"foreign": ["b", "gone"], "primary": {"who": "user.name", "b": "b"}}
    primary = {"b": 1, "user": {"name": "ada", "mail": "x"}}
    assert shaped(table, {"a": 1, "b": 2}, primary) == ({"b": 2}, {"who": "ada", "b": 1})
    result = Shaper(shape_from_table(table, "shape"), "shape").shaped(Joined(b'{"b":2}', orjson.dumps(primary)))
    assert result == Joined(b'{"b":2}', b'{"who":"ada","b":1}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


NAMES = st.text(max_size=5).filter(lambda name: not name.endswith("!"))  # those belong to the test


@given(st.dictionaries(NAMES, JSON, max_size=5))
def test_what_is_not_touched_keeps_its_bytes(fields: dict[str, Any]) -> None:

    number = "123456789012345678901234567890.10"
    text = json.dumps({**fields, "x!": 1}, ensure_ascii=False)[:-1] + f', "n!": {number}, "z!": 1E400}}'
    table = {"derive": [{"name": "foreign.new!", "text": "x"}], "redact": {"foreign.x!": "drop"}}
    result = Shaper(shape_from_table(table, "shape"), "shape").shaped(Joined(text.encode("utf-8", "replace"), b"{}"))
    assert isinstance(result, Joined)
    assert result.foreign is not None
    assert number.encode() in result.foreign
    assert b"1E400" in result.foreign
    kept = json.loads(result.foreign, parse_float=str)
    assert {name: kept[name] for name in fields} == json.loads(json.dumps(fields))
    assert "x!" not in kept


@pytest.mark.parametrize(
    "table",
    [
        {"unknown": 1}, {"filter": [{"field": "url", "equals": 1}]}, {"filter": [{"field": "foreign.a"}]},
        {"skip": [{"field": "primary.a", "equals": 1}]}, {"filter": [{"field": "foreign.a", "matches": "("}]},
        {"derive": [{"name": "foreign.a"}]}, {"derive": [{"name": "a", "text": "x"}]},
        {"derive": [{"name": "foreign.a", "from": "foreign.b", "pattern": "("}]},
        {"derive": [{"name": "foreign.a", "text": "x", "from": "foreign.b"}]}, {"redact": {"foreign.a": "burn"}},
        {"redact": {"foreign.a": "hash"}}, {"redact": {"foreign.a": "mask"}, "hash_key_file": "k"},
        {"redact": {"a": "drop"}}, {"foreign": [f"f{n}" for n in range(257)]},
    ],
)  # fmt: skip
def test_shapes_that_cannot_be(table: Mapping[str, Any]) -> None:
    with pytest.raises(AdapterError) as caught:
        shape_from_table(table, "join.x.shape")
    assert str(caught.value).startswith("join.x.shape")
    assert "\n" not in str(caught.value)


SIDES: dict[str, Any] = {
    "primary": {"format": "jsonl", "key": "q"},
    "foreign": {"format": "jsonl", "key": "q", "id": "c", "time": {"field": "t", "unit": "s"}},
}
TABLE: dict[str, Any] = {
    "skip": [{"field": "foreign.kind", "equals": "ping"}],
    "filter": [{"field": "primary.bot", "equals": True, "reason": "a bot"}],
    "redact": {"primary.mail": "hash"},
    "hash_key_file": "key",
    "foreign": ["c"],
}


def adapter(base: Path, **more: Any) -> Adapter:
    (base / "key").write_bytes(KEY)
    return adapter_of_join(Join(**SIDES, shape={**TABLE, **more}), "x", base)


def test_a_configured_join_is_shaped_and_keeps_the_contract_and_its_rule(tmp_path: Path) -> None:
    made = adapter(tmp_path)
    assert type(made) is ConfiguredAdapter
    assert made.rule() == adapter_of_join(Join(**SIDES), "x", tmp_path).rule()
    click, ping = b'{"c":"c1","q":"q1","t":5}', b'{"kind":"ping","t":"x"}'
    query = b'{"q":"q1","mail":"a@b.c"}'
    with pytest.raises(Skipped):
        made.foreign_header(ping, FILE)
    found = made.header_columns([click, ping, b"rubbish"], FILE).rows()
    assert [type(each) for each in found][1:] == [Skipped, BadRecord]
    joined = made.join(click, FILE, query, FILE)
    assert isinstance(joined, Joined)
    assert joined.foreign == b'{"c":"c1"}'
    assert b"a@b.c" not in (joined.primary or b"")
    assert made.join(click, FILE, b'{"q":"q1","bot":true}', FILE) == Filtered("a bot")
    check_adapter(made, Samples.of(primary=[query, b'{"q":"q2"}'], foreign=[click, b'{"c":"c2","q":"q2","t":6}']))


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="No such file"):
        adapter(tmp_path, hash_key_file="none")
    (tmp_path / "short").write_bytes(b"short")
    with pytest.raises(AdapterError, match="a key has 16 to 64 bytes"):
        adapter(tmp_path, hash_key_file="short")


class Own(ConfiguredAdapter):
    """A written adapter that joins many at once, with its own shape."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        shaped_adapter(self, {"foreign": ["c"], "primary": []}, "own", Path())

    def join_columns(self, pairs: Pairs) -> Payloads:
        return Payloads(pairs.foreign, pairs.primary, {})


def test_written_adapters_have_shapes_too() -> None:
    own = Own(SIDES)
    click, query = b'{"c":"c1","q":"q1","t":5}', b'{"q":"q1"}'
    assert own.join(click, FILE, query, FILE) == Joined(b'{"c":"c1"}', b"{}")
    assert own.defines("join_columns")
    assert own.join_columns(Pairs([click], [FILE], [query], [FILE])).rows() == [Joined(b'{"c":"c1"}', b"{}")]
    check_adapter(own, Samples.of(primary=[query], foreign=[click]))
