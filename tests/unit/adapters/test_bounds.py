"""Bounds on the event times of a pair: valid and invalid pairs, one by one and in columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    Filtered,
    ForeignHeader,
    Joined,
    LogFile,
    Pairs,
    Unpaired,
)
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.testkit.checks import examine
from photon.adapters.testkit.samples import Sample, Samples
from photon.config.loader import ConfigError, convert
from photon.config.settings import Join, Limits
from photon.spark.shipped_adapter import adapter_spec, made
from tests.unit.refusals import one_line

FILE, OTHER = LogFile("a.log"), LogFile("b.log")
TIME = {"field": "t", "unit": "s"}
SIDES: dict[str, Any] = {
    "primary": {"format": "jsonl", "key": "k", "time": TIME},
    "foreign": {"format": "jsonl", "key": "k", "id": "c", "time": TIME},
}
WITHIN = {"before": "1h", "after": "5m"}


def settings(within: dict[str, Any] | None = WITHIN, **join: Any) -> Any:
    return convert({"join": {"x": {**SIDES, **join, **({} if within is None else {"within": within})}}}, "t.toml")


def adapter(within: dict[str, Any] | None = WITHIN, **join: Any) -> Adapter:
    return adapter_of_join(settings(within, **join).join["x"], "x", Path())


def click(time: float) -> bytes:
    return orjson.dumps({"k": "q", "c": "1", "t": time})


def query(time: float | str) -> bytes:
    return orjson.dumps({"k": "q", "t": time})


def test_both_ends_belong_to_the_window() -> None:
    it = adapter()
    for primary_s, why in {
        10_000: None,
        10_000 - 3600: None,
        10_000 + 300: None,
        10_000 - 3601: "the primary event is 1:00:01 older, and within.before is 1:00:00",
        10_301: "the primary event is 0:05:01 newer, and within.after is 0:05:00",
    }.items():
        result = it.join(click(10_000), FILE, query(primary_s), FILE)
        assert result == (Joined(click(10_000), query(primary_s)) if why is None else Unpaired(why))


@given(
    st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**18), st.integers(0, 10**18)
)
def test_the_window_is_what_it_says(foreign: int, primary: int, before: int, after: int) -> None:
    inside = foreign - before <= primary <= foreign + after
    assert (Bounds(before, after).refusal(foreign, primary) is None) == inside


def test_columns_say_the_same_and_keep_their_rows() -> None:
    it = adapter(shape={"filter": [{"field": "foreign.c", "equals": "2"}]})
    rows = [
        (click(10_000), FILE, query(10_000), FILE),
        (click(10_000), FILE, query(0), OTHER),
        (orjson.dumps({"k": "q", "c": "2", "t": 10_000}), OTHER, query(10_000), FILE),
        (click(10_000), FILE, query("soon"), FILE),
        (click(10_000), OTHER, query(10_001), FILE),
    ]
    made = it.join_columns(Pairs(*map(list, zip(*rows, strict=True)))).rows()
    assert [type(each) for each in made] == [Joined, Unpaired, Filtered, BadRecord, Joined]
    bad = made[3]
    assert isinstance(bad, BadRecord)
    assert bad.reason.startswith("the primary event: time field 't'")
    for each, row in zip(made, rows, strict=True):
        if isinstance(each, BadRecord):
            with pytest.raises(BadRecord):
                it.join(*row)
        else:
            assert it.join(*row) == each


def test_a_time_that_the_primary_lacks_is_said() -> None:
    with pytest.raises(BadRecord, match="the primary event: time field 't' is missing"):
        adapter().join(click(1), FILE, b'{"k":"q"}', FILE)


class Own(Adapter):
    """Written by a user; its primary time is the record."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(b"q", int(record))

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return b"q"

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return record

    primary_payload = foreign_payload


class Timed(Own):
    def primary_time(self, record: bytes, file: LogFile) -> int:
        return int(record)


def test_a_written_adapter_says_the_primarys_time_or_is_refused() -> None:
    with pytest.raises(AdapterError, match=r"join\.x: within compares event times; give the primary a time too"):
        bounded_adapter(Own({}), Bounds(5, 5), "join.x")
    it = bounded_adapter(Timed({}), Bounds(5, 5), "join.x")
    assert it.join(b"10", FILE, b"5", FILE) == Joined(b"10", b"5")
    assert isinstance(it.join(b"11", FILE, b"5", FILE), Unpaired)


def test_without_bounds_nothing_changes() -> None:
    assert adapter(None).join(click(10**6), FILE, query(0), FILE) == Joined(click(10**6), query(0))
    assert adapter().rule() == adapter(None).rule()  # as with duplicates: it may be changed
    assert isinstance(adapter(), ConfiguredAdapter)


def test_it_is_made_again_elsewhere(tmp_path: Path) -> None:
    shipped = made(adapter_spec("x", settings().join["x"], Path(), Limits()), tmp_path)
    assert isinstance(shipped.join(click(10**6), FILE, query(0), FILE), Unpaired)
    samples = Samples([Sample(query(0), FILE, 1)], [Sample(click(10**6), FILE, 1), Sample(click(1), FILE, 2)])
    assert examine(adapter(), samples, without=("bad lines", "speed")).kept


@pytest.mark.parametrize(
    ("within", "more", "said"),
    [
        ({}, {}, "join.x.within: before and after are both 0"),
        ({"before": "0s", "after": 0}, {}, "join.x.within: before and after are both 0"),
        ({"before": "-1h"}, {}, "before = '-1h': a duration is a number of seconds or text"),
        ({"after": -1}, {}, "after = -1: a duration is at least 0"),
        ({"before": "1h", "beforee": "2h"}, {}, "beforee: unknown key; did you mean 'before'?"),
        ({"before": "8d"}, {"registry": {"retention": "7d"}}, "is longer than registry.retention = 604800 s"),
        ({"after": "1h"}, {"patience": "10m"}, "is longer than join.x.unmatched_after = 600 s"),
    ],
)
def test_a_window_that_no_pair_can_keep_is_one_line(within: Any, more: dict[str, Any], said: str) -> None:
    join = {**SIDES, "within": within, **({"unmatched_after": more["patience"]} if "patience" in more else {})}
    raw = {"join": {"x": join}, **({"registry": more["registry"]} if "registry" in more else {})}
    with one_line(ConfigError, said):
        convert(raw, "t.toml")


def test_the_primary_needs_a_time() -> None:
    untimed = Join(
        primary={"format": "jsonl", "key": "k"}, foreign=SIDES["foreign"], within=settings().join["x"].within
    )
    with pytest.raises(AdapterError, match=r"join\.x: within compares event times; give the primary a time"):
        adapter_of_join(untimed, "x", Path())
