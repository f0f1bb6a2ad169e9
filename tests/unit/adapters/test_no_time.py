"""Foreign records without an event time: all have the same one, and options that compare times are refused."""

from __future__ import annotations

from typing import Any

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError, ForeignHeader, LogFile
from photon.adapters.join_adapters import adapter_of
from photon.config.loader import convert
from photon.config.settings import Settings

FORMATS: dict[str, tuple[dict[str, Any], bytes]] = {
    "jsonl": ({"format": "jsonl"}, b'{"k":"a","id":"b","x":1}'),
    "jsonl, a number": ({"format": "jsonl", "key": {"field": "k", "as": "number"}}, b'{"k":7.5,"id":"b"}'),
    "nested": ({"format": "jsonl", "key": "o.k"}, b'{"o":{"k":"a"},"id":"b"}'),
    "several fields": ({"format": "jsonl", "key": ["k", "x"]}, b'{"k":"a","id":"b","x":1}'),
    "csv": ({"format": "csv", "columns": ["k", "id"]}, b"a,b"),
    "regex": ({"format": "regex", "pattern": "(?P<k>[^,]*),(?P<id>.*)"}, b"a,b"),
    "logfmt": ({"format": "logfmt"}, b"k=a id=b"),
}


TIMED = {"format": "jsonl", "key": "k", "time": {"field": "t", "unit": "s"}}


@pytest.mark.parametrize("name", FORMATS)
def test_every_record_has_the_same_time(name: str) -> None:
    table, record = FORMATS[name]
    side = {"key": "k", **table}
    adapter = ConfiguredAdapter({"primary": side, "foreign": {**side, "id": "id"}})
    assert not adapter.has_foreign_time
    header = adapter.foreign_header(record, LogFile("a.log"))
    assert (header.event_time_ns, header.event_id) == (0, b"b")
    assert adapter.header_columns([record] * 3, LogFile("a.log")).rows() == [header] * 3
    columns = adapter.header_columns([record] * 3, LogFile("a.log"))
    assert list(columns.times) == [0, 0, 0]
    timed = ConfiguredAdapter({"primary": side, "foreign": {**side, "time": {"field": "id", "unit": "s"}}})
    assert timed.rule() != adapter.rule()
    assert timed.has_foreign_time


def test_a_key_that_is_missing_is_still_missing() -> None:
    adapter = ConfiguredAdapter({side: {"format": "jsonl", "key": "k"} for side in ("primary", "foreign")})
    good, bad = adapter.header_columns([b'{"k":"a"}', b'{"x":1}'], LogFile("a.log")).rows()
    assert good == ForeignHeader(b"a", 0)
    assert "key field 'k' is missing" in str(bad)


def settings(**more: Any) -> Settings:
    join = {"primary": {"format": "jsonl", "key": "k"}, "foreign": {"format": "jsonl", "key": "k"}}
    return convert({"join": {"x": {**join, **more.pop("join", {})}}, **more}, "a file")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"registry": {"retention": "3d"}}, "join.x.foreign: time is missing, and registry.retention is set; leave"),
        (
            {"join": {"within": {"before": "1h"}}},
            "join.x: time is missing in foreign, and within compares",
        ),
        ({"join": {"written_within": "1h"}}, "time is missing in foreign, and written_within compares event times"),
        (
            {"join": {"match": "latest", "primary": TIMED}},
            'in foreign, and match = "latest" compares event times',
        ),
    ],
)
def test_what_needs_event_times_is_refused(more: dict[str, Any], said: str, tmp_path: Any) -> None:
    with pytest.raises(AdapterError) as refused:
        adapter_of(settings(**more), "x", tmp_path)
    assert said in str(refused.value)
    assert adapter_of(settings(), "x", tmp_path).has_foreign_time is False
