"""Configuration becomes an adapter, and errors in it are reported in one line."""

from __future__ import annotations

from typing import Any

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, AdapterError, BadRecord, Filtered, ForeignHeader, Joined, LogFile, Pairs
from photon.adapters.side import SideConfig, TimeConfig, side_from_table
from tests.unit.refusals import one_line

FILE = LogFile("a.log")
PRIMARY: dict[str, Any] = {"format": "jsonl", "key": "q"}
FOREIGN: dict[str, Any] = {"format": "jsonl", "key": "q", "id": "c", "time": {"field": "t", "unit": "ms"}}


def adapter(primary: dict[str, Any] = PRIMARY, foreign: dict[str, Any] = FOREIGN) -> ConfiguredAdapter:
    return ConfiguredAdapter({"primary": primary, "foreign": foreign, "where": "join.x"})


def test_reading_and_joining() -> None:
    it = adapter()
    click, query = b'{"q":"k","c":"1","t":5}', b'{"q":"k","text":"shoes"}'
    assert it.foreign_header(click, FILE) == ForeignHeader(b"k", 5_000_000, b"1")
    assert it.header_columns([click], FILE).rows() == [it.foreign_header(click, FILE)]
    assert it.primary_key(query, FILE) == b"k"
    assert it.primary_keys(query + b"\r\n{\n", FILE) == [b"k", None]
    assert it.join(click, FILE, query, FILE) == Joined(click, query)
    assert not it.primary_has_header
    assert not it.foreign_has_header


def test_sides_may_differ_in_format() -> None:
    csv = {"format": "csv", "key": "q", "time": {"field": "t", "format": "iso8601"}}
    it = adapter(foreign=csv)
    assert it.foreign_has_header
    assert not it.primary_has_header
    file = LogFile("c.csv", b"t,q")
    assert it.foreign_header(b"1970-01-01,k", file) == ForeignHeader(b"k", 0)
    assert it.join(b"1970-01-01,k", file, b'{"q":"k"}', FILE) == Joined(b'{"t":"1970-01-01","q":"k"}', b'{"q":"k"}')


def test_structs_and_tables_are_the_same() -> None:
    primary = SideConfig(format="jsonl", key="q")
    foreign = SideConfig(format="jsonl", key="q", id="c", time=TimeConfig(field="t", unit="ms"))
    assert ConfiguredAdapter.from_sides(primary, foreign).rule() == adapter().rule()


def test_rule_names_everything_that_derives_id_key_and_time() -> None:
    base = adapter().rule()
    assert adapter().rule() == base
    time = FOREIGN["time"]
    others = [
        adapter({**PRIMARY, "key": "r"}),
        adapter(foreign={**FOREIGN, "key": "r"}),
        adapter(foreign={**FOREIGN, "id": "d"}),
        adapter(foreign={k: v for k, v in FOREIGN.items() if k != "id"}),
        adapter(foreign={**FOREIGN, "time": {**time, "unit": "s"}}),
        adapter(foreign={**FOREIGN, "time": {**time, "field": "u"}}),
        adapter(foreign={**FOREIGN, "time": {**time, "origin": "2012-06-21"}}),
        adapter(foreign={**FOREIGN, "time": {**time, "origin": "2012-06-21", "zone": "+01:00"}}),
        adapter(foreign={k: v for k, v in FOREIGN.items() if k != "time"}),
        adapter({**PRIMARY, "absent": "-"}),
        adapter({**PRIMARY, "absent": "n/a"}),
        adapter({**PRIMARY, "framing": "cri"}),
        adapter(foreign={**FOREIGN, "framing": "cri"}),
        adapter(foreign={**FOREIGN, "framing": "cri", "time": "line"}),
        adapter({"format": "csv", "key": "q"}),
        adapter({"format": "csv", "key": "q", "columns": ["q", "r"]}),
        adapter({"format": "tsv", "key": "q"}),
        adapter({"format": "regex", "key": "q", "pattern": "(?P<q>.)"}),
    ]
    rules = [other.rule() for other in others]
    assert len({base, *rules}) == len(rules) + 1
    written_out = adapter({"format": "csv", "key": "q", "header": True, "delimiter": ",", "quote": '"'})
    assert written_out.rule() == adapter({"format": "csv", "key": "q"}).rule()
    assert adapter({**PRIMARY, "time": {"field": "z", "unit": "s"}}).rule() == base  # the primary's time is not used


class Upper(ConfiguredAdapter):
    """Overrides the meaning of one record; the methods for many must follow."""

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return super().primary_key(record, file).upper()

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        header = super().foreign_header(record, file)
        return ForeignHeader(header.key.upper(), header.event_time_ns, header.event_id)

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        return Filtered("spam") if b"spam" in foreign else super().join(foreign, foreign_file, primary, primary_file)


def test_subclasses_keep_one_and_many_alike() -> None:
    it = Upper({"primary": PRIMARY, "foreign": FOREIGN})
    assert it.primary_keys(b'{"q":"k"}\n', FILE) == [b"K"]
    (header,) = it.header_columns([b'{"q":"k","c":"1","t":5}'], FILE).rows()
    assert isinstance(header, ForeignHeader)
    assert header.key == b"K"
    assert it.join(b'{"spam":1}', FILE, b"{}", FILE) == Filtered("spam")
    assert it.rule() == adapter().rule()  # code is held to its earlier results for records
    assert isinstance(it, Adapter)


def test_records_of_another_join_are_read_without_more_words() -> None:
    it = adapter({"join": "clicks", "key": "foreign.c"}, {"join": "clicks", "key": "primary.q"})
    line = b'{"event_id":"e1","key":"k","event_time_ns":7,"foreign":{"c":"c1"},"primary":{"q":"q1"},"token":"0"}'
    assert it.primary_key(line, FILE) == b"c1"
    assert it.foreign_header(line, FILE) == ForeignHeader(b"q1", 7, b"e1")
    written_out = {"format": "jsonl", "key": "primary.q", "id": "event_id"}
    written_out["time"] = {"field": "event_time_ns", "unit": "ns"}  # type: ignore[assignment]
    assert adapter({"format": "jsonl", "key": "foreign.c"}, written_out).rule() == it.rule()
    with pytest.raises(AdapterError, match=r"format = 'csv' is not possible; remove it"):
        side_from_table({"join": "clicks", "key": "k", "format": "csv"}, "join.x.primary", foreign=False)


def test_a_year_of_the_first_line_reaches_the_records() -> None:
    time = {"field": "at", "format": "%b %e %H:%M:%S", "year": 2025}
    for side, record in (
        ({"format": "jsonl"}, b'{"q":"k","at":"Jan  1 00:00:00"}'),
        ({"format": "logfmt"}, b'q=k at="Jan  1 00:00:00"'),
    ):
        it, file = adapter(foreign={**side, "key": "q", "time": time}), LogFile("f.log", b"at=Dec 31 23:59:59")
        assert it.foreign_framing.first_line
        assert list(it.header_columns([record], file).times) == [1_767_225_600_000_000_000]
        with pytest.raises(BadRecord, match="has no year, and its file's first line, '', has no month"):
            it.foreign_header(record, LogFile("f.log"))


def test_the_time_of_the_primary_event() -> None:
    primary = {**PRIMARY, "time": {"field": "at", "unit": "s"}}
    it = adapter(primary, {"format": "jsonl", "key": "q", "time": "primary"})
    assert (it.has_time_of_primary, it.has_foreign_time) == (True, False)
    assert it.foreign_header(b'{"q":"k"}', FILE) == ForeignHeader(b"k", 0)
    good, bad = b'{"q":"k","at":5}', b'{"q":"k","at":"?"}'
    assert it.join(b'{"q":"k"}', FILE, good, FILE) == Joined(b'{"q":"k"}', good)
    with pytest.raises(BadRecord, match=r"^the primary event: time field 'at' = '.' is not a number of s"):
        it.join(b'{"q":"k"}', FILE, bad, FILE)
    found = it.join_columns(Pairs([b'{"q":"k"}'] * 2, [FILE] * 2, [bad, good], [FILE] * 2)).rows()
    assert [type(each) for each in found] == [BadRecord, Joined]
    with one_line(AdapterError, 'time = "primary", but the primary has no time'):
        adapter(PRIMARY, {"format": "jsonl", "key": "q", "time": "primary"})
    for side, foreign in (({**PRIMARY, "time": "primary"}, False), ({**PRIMARY, "time": "line"}, True)):
        with one_line(AdapterError, "is not possible; name a field"):
            side_from_table(side, "join.x", foreign=foreign)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"id": "x"}, "only foreign events have an id"),
        ({"format": "regex", "pattern": "x" * 9000}, "keep it below"),
        ({"skip": [{"field": "a", "equals": "b"}] * 257}, "more than 256"),
    ],
)
def test_limits_of_a_primary_side(more: dict[str, Any], said: str) -> None:
    with one_line(AdapterError, said):
        adapter({**PRIMARY, **more})


def test_a_primary_record_has_a_time_only_if_it_is_configured() -> None:
    with pytest.raises(BadRecord, match="no time field is configured"):
        adapter()._primary.header(b'{"q":"k"}', FILE)
