"""Keys of several fields and normalised ones: equal values give one key, different ones never do."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import ForeignHeader, LogFile
from photon.adapters.formats.part_rules import number
from tests.unit.adapters.messages import descriptor_set, event_class

FILE = LogFile("a.log")
TIME = {"field": "t", "unit": "ms"}
TWO = ["shop", "order"]


def adapter(key: Any, other: Any = None, **side: Any) -> ConfiguredAdapter:
    side = side or {"format": "jsonl"}
    tables = {"primary": {**side, "key": key}, "foreign": {**side, "key": other or key, "id": "c", "time": TIME}}
    return ConfiguredAdapter({**tables, "where": "join.x"})


@given(st.lists(st.tuples(*[st.text("ab|~", min_size=1)] * 2), min_size=2, max_size=2, unique=True))
@example([("a", "bc"), ("ab", "c")])
@example([("a|", "b"), ("a", "|b")])
@example([("a~1", "b"), ("a|", "b")])
def test_no_two_lists_of_parts_have_one_key(both: list[tuple[str, str]]) -> None:
    it = adapter(TWO)
    records = [orjson.dumps({"shop": shop, "order": order}) for shop, order in both]
    one, other = it.primary_keys_of(records, FILE)
    assert one is not None
    assert one != other
    assert tuple(part.replace("~1", "|").replace("~0", "~") for part in one.decode().split("|")) == both[0]


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=9))
def test_a_numbers_spelling_keeps_its_value(value: Any) -> None:
    spelt = number("n", str(value).encode())
    assert type(value)(spelt.decode()) == value
    assert number("n", spelt) == spelt


def test_one_field_is_what_it_always_was() -> None:
    plain = adapter("shop")
    for same in (["shop"], {"field": "shop"}, [{"field": "shop"}]):
        assert adapter(same).rule() == plain.rule()
        assert type(adapter(same)._primary) is type(plain._primary)
    rules = [
        plain.rule(),
        adapter(TWO).rule(),
        adapter(TWO[::-1]).rule(),
        adapter({"field": "shop", "as": "number"}).rule(),
        adapter({"field": "shop", "trim": True}).rule(),
        adapter([{"field": "shop", "case": "fold"}, "order"]).rule(),
    ]
    assert len(set(rules)) == len(rules)


def test_one_rule_on_one_side_meets_plain_text_on_the_other() -> None:
    it = adapter("n", {"field": "n", "as": "number"})
    assert it.primary_key(b'{"n":7}', FILE) == it.foreign_header(b'{"n":"007","c":"1","t":1}', FILE).key


def test_protobuf_reads_all_parts_and_its_rule_knows_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "event.pb").write_bytes(descriptor_set())
    side: dict[str, Any] = {"format": "protobuf", "descriptor": "event.pb", "message": "test.Event"}
    foreign = {**side, "id": "text", "time": {"field": "number", "unit": "s"}}

    def made(*key: str) -> ConfiguredAdapter:
        tables = {"primary": {**side, "key": list(key)}, "foreign": {**foreign, "key": list(key)}}
        return ConfiguredAdapter({**tables, "where": "join.x", "base": str(tmp_path)})

    message = event_class(descriptor_set())(key={"name": "a|b"}, text="t1", number=7)
    record = base64.b64encode(message.SerializeToString())
    it = made("key.name", "number")
    assert it.primary_key(record, FILE) == b"a~1b|7"
    assert it.foreign_header(record, FILE) == ForeignHeader(b"a~1b|7", 7 * 10**9, b"t1")
    assert it.primary_keys(record + b"\n", FILE) == [b"a~1b|7"]
    assert len({made("key.name", "number").rule(), made("number", "key.name").rule(), made("number").rule()}) == 3
