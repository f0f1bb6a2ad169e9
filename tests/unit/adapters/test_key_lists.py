"""Keys that an event lists: read one by one and in columns, in every format; what names none, or too many, is bad."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError, BadRecord, LogFile
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.key_lists import KEYS_MAX, keys_in, keys_named, list_of_keys
from photon.config.settings import Join

FILE = LogFile("a.log")
KEYS = st.lists(st.binary(min_size=1, max_size=4) | st.text("|~01", min_size=1).map(str.encode), min_size=1)


@given(KEYS)
def test_a_list_holds_each_key_once_in_its_order(keys: list[bytes]) -> None:
    assert keys_in(list_of_keys(keys)) == list(dict.fromkeys(keys))


@given(KEYS, KEYS)
def test_different_lists_differ(one: list[bytes], other: list[bytes]) -> None:
    assert (list_of_keys(one) == list_of_keys(other)) == (list(dict.fromkeys(one)) == list(dict.fromkeys(other)))


def test_no_key_and_too_many_are_bad() -> None:
    with pytest.raises(BadRecord, match="names no key"):
        list_of_keys([b""])
    with pytest.raises(BadRecord, match="more than 1,000 keys"):
        list_of_keys(b"%d" % n for n in range(KEYS_MAX + 1))


def adapter(key: Any, other: Any = "o", **side: Any) -> ConfiguredAdapter:
    side = {"format": "jsonl", **side}
    return ConfiguredAdapter({"primary": {"format": "jsonl", "key": other}, "foreign": {**side, "key": key}})


def named(it: ConfiguredAdapter, *records: bytes) -> list[list[bytes] | str]:
    """The keys that each record names, or why it names none; the same by every method."""
    rows = it.header_columns(records, FILE).rows()
    for record, row in zip(records, rows, strict=True):
        if isinstance(row, BadRecord):
            with pytest.raises(BadRecord) as alone:
                it.foreign_header(record, FILE)
            assert alone.value.reason == row.reason
        else:
            assert it.foreign_header(record, FILE) == row
    return [row.reason if isinstance(row, BadRecord) else list(keys_named(it, row.key)) for row in rows]


def test_lists_in_json() -> None:
    it = adapter({"field": "orders", "each": True})
    assert it.several_keys
    assert named(
        it, b'{"orders":["a","b","a"]}', b'{"orders":[7,"7",12345678901234567890123]}', b'{"orders":"a|b"}',
        b'{"orders":["a","",null]}', b'{"orders":[]}', b"{}", b'{"orders":[true]}', b'{"orders":[["a"]]}', b"[",
    ) == [
        [b"a", b"b"], [b"7", b"12345678901234567890123"], [b"a|b"],
        [b"a"], "names no key", "names no key", "key field 'orders' is a boolean, not text or an integer",
        "key field 'orders' is an array, not text or an integer",
        "is not JSON: unexpected end of data: line 1 column 2 (char 1)",
    ]  # fmt: skip


def test_a_field_of_each_object_in_a_list() -> None:
    it = adapter({"field": "items.order.id", "each": True})
    items = [{"order": {"id": 1}}, {"order": [{"id": "2"}, {"id": 3}]}, {"shipping": 5}, "gift"]
    assert named(it, orjson.dumps({"items": items}), b'{"items.order.id":["x"]}') == [[b"1", b"2", b"3"], [b"x"]]


def test_the_rules_hold_for_each_member_and_one_that_breaks_them_is_bad() -> None:
    it = adapter({"field": "o", "each": True, "pattern": "no-(.*)", "as": "number"})
    good, bad = named(it, b'{"o":["no-07","no-8.0","no-7"]}', b'{"o":["no-7","x"]}')
    assert good == [b"7", b"8"]
    assert "is 'x', in which" in bad


@pytest.mark.parametrize(
    ("side", "record"),
    [
        ({"format": "csv", "columns": ["a", "o"]}, b'1,"A, b,,-"'),
        ({"format": "logfmt"}, b'a=1 o="A, b,,-"'),
        ({"format": "regex", "pattern": "(?P<a>.) (?P<o>.*)"}, b"1 A, b,,-"),
        ({"format": "jsonl"}, b'{"a":1,"o":"A, b,,-"}'),
    ],
)
def test_a_text_that_holds_several_keys_in_every_format(side: dict[str, Any], record: bytes) -> None:
    key = {"field": "o", "each": ",", "trim": True, "case": "fold"}
    timed = {"time": {"field": "a", "unit": "s"}, "absent": "-"}
    assert named(adapter(key, **side, **timed), record) == [[b"a", b"b"]]


def test_the_part_of_a_text_that_holds_them() -> None:
    it = adapter({"field": "url", "part": "?ids", "each": ","})
    assert named(it, b'{"url":"/x?ids=1,2&a=3,4"}') == [[b"1", b"2"]]


def test_a_field_beside_the_list_belongs_to_each_key() -> None:
    it = adapter(["shop", {"field": "orders", "each": True}], ["shop", "order"])
    keys = [it.primary_key(b'{"shop":"s|1","order":"%b"}' % order, FILE) for order in (b"a", b"b~")]
    assert named(it, b'{"shop":"s|1","orders":["a","b~"]}') == [keys]


@pytest.mark.parametrize(
    ("key", "primary", "side", "why"),
    [
        ({"field": "o", "each": True}, "o", {"format": "csv"}, "separates them"),
        ("o", {"field": "o", "each": True}, {}, "foreign side"),
        ([{"field": "o", "each": True}, {"field": "p", "each": ","}], ["o", "p"], {}, "one field"),
        ("o", "o", {"id": {"field": "o", "each": True}}, "one id"),
        ({"field": "o", "each": 7}, "o", {}, "each"),
    ],
)
def test_what_cannot_be_is_refused(key: Any, primary: Any, side: dict[str, Any], why: str) -> None:
    with pytest.raises(AdapterError, match=why):
        adapter(key, primary, **side)


@pytest.mark.parametrize("match", ["first", "latest"])
def test_an_event_of_several_keys_takes_all_that_they_name(match: Any, tmp_path: Any) -> None:
    time = {"field": "t", "unit": "s"}
    sides = {
        "primary": {"format": "jsonl", "key": "o", "time": time},
        "foreign": {"format": "jsonl", "key": {"field": "o", "each": True}, "time": time},
    }
    assert adapter_of_join(Join(**sides, match="all"), "x", tmp_path).several_keys
    with pytest.raises(AdapterError, match='write match = "all"'):
        adapter_of_join(Join(**sides, match=match), "x", tmp_path)
