"""A marker for absent values: no key, id or time, and left out of the payload; blocks agree with single records."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, AdapterError, ForeignHeader, LogFile

FILE = LogFile("a.log")
SIDES: dict[str, dict[str, Any]] = {
    "csv": {"format": "csv", "columns": ["k", "id", "ts", "x"]},
    "regex": {"format": "regex", "pattern": "(?P<k>[^,]*),(?P<id>[^,]*),(?P<ts>[^,]*),(?P<x>.*)"},
    "logfmt": {"format": "logfmt"},
}


def adapter_of(name: str, **more: Any) -> ConfiguredAdapter:
    side = {**SIDES[name], "key": "k", "absent": "-", **more}
    return ConfiguredAdapter({"primary": side, "foreign": {**side, "id": "id", "time": {"field": "ts", "unit": "s"}}})


def line(name: str, k: str, event: str, ts: str, x: str) -> bytes:
    if name == "logfmt":
        return f"k={k} id={event} ts={ts} x={x}".encode()
    return f"{k},{event},{ts},{x}".encode()


@given(st.lists(st.lists(st.sampled_from(["-", "a", "b", "--", ""]), min_size=4, max_size=4), max_size=8))
@settings(deadline=None, max_examples=100)
@pytest.mark.parametrize("name", sorted(SIDES))
def test_blocks_agree_with_single_records(name: str, rows: list[list[str]]) -> None:
    adapter = adapter_of(name)
    block = b"".join(line(name, *row) + b"\n" for row in rows)
    assert adapter.primary_keys(block, FILE) == Adapter.primary_keys(adapter, block, FILE)


VALUES = st.sampled_from(["-", "NULL", "a", "", 7, None, "\u00e4", 'q"'])


@given(st.lists(st.tuples(VALUES, VALUES), max_size=8))
@settings(deadline=None, max_examples=150)
def test_of_json_the_marks_that_are_listed_are_no_key_and_no_id(rows: list[tuple[Any, Any]]) -> None:
    side = {"format": "jsonl", "key": "k", "absent": ["-", "NULL"]}
    adapter = ConfiguredAdapter({"primary": side, "foreign": {**side, "id": "id"}})
    records = [orjson.dumps({"k": key, "id": event}) for key, event in rows]
    block = b"".join(record + b"\n" for record in records)
    keys = [str(key).encode() if key not in ("-", "NULL", "", None) else None for key, _ in rows]
    assert adapter.primary_keys(block, FILE) == adapter.primary_keys_of(records, FILE) == keys
    located = adapter.located_primary_keys(block, FILE)
    assert located is None or located[0] == keys
    for headers in (
        adapter.header_columns(records, FILE).rows(),
        [adapter.header_columns([r], FILE).rows()[0] for r in records],
    ):
        ids = [str(event).encode() if event not in ("-", "NULL", "", None) else None for _, event in rows]
        wanted = [(k, i) if k and i else None for k, i in zip(keys, ids, strict=True)]
        assert [(h.key, h.event_id) if isinstance(h, ForeignHeader) else None for h in headers] == wanted
    for record in records:
        assert adapter.foreign_payload(record, FILE) == record, "fields stay as they are"


def test_a_list_of_marks_is_one_rule_in_any_order() -> None:
    one, other = (adapter_of("csv", absent=marks) for marks in (["-", "N/A"], ["N/A", "-"]))
    assert one.rule() == other.rule()
    assert adapter_of("csv", absent=["-"]).rule() == adapter_of("csv", absent="-").rule()
    for wrong in ([""], ["x"] * 100):
        with pytest.raises(AdapterError, match=r"absent = .* write one text, or a list of at most 64"):
            adapter_of("csv", absent=wrong)
