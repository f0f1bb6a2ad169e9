"""Headers in columns: an adapter's columns count like its headers record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from photon.adapters.computed_twice import rows_due
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile, Skipped
from photon.adapters.faults import KEY_BYTES_MAX
from photon.joiner.foreign_columns import events_of, records_of
from tests.unit.dispatcher.world import DIGESTER, Words, block

LINES = b"i1 k1 1\n- k2 2\nbad\n"
HOUR = 3_600_000_000_000


def read(adapter: Words, data: bytes = LINES) -> tuple[list[tuple[bytes, bytes, int]], list[str]]:
    """(id, key, hour) of readable records, and why the others are unreadable."""
    what = block(data)
    columns, unreadable, _ = events_of(what, *records_of(what), adapter, DIGESTER)
    hours = [time_ns // HOUR for time_ns in columns.times.tolist()]
    return list(zip(columns.ids, columns.keys, hours, strict=True)), [each.reason for each in unreadable]


class InColumns(Words):
    """Answers in columns, modified by ``change``; an exception is raised."""

    asked = 0

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Any:
        self.asked += 1
        found = super().header_columns(records, file)
        change = self.options.get("change", {})
        if isinstance(change, Exception):
            raise change
        return found._replace(**change) if isinstance(change, dict) else change


class Overridden(InColumns):
    """Gives its headers another meaning than its base class does."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(b"own", 0, b"id")


GOOD = read(Words({}))


def test_what_is_given_in_columns_is_what_each_record_gives() -> None:
    adapter = InColumns({})
    assert read(adapter) == GOOD
    assert adapter.asked == 1
    assert len(GOOD[0]) == 2
    assert len(GOOD[1]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"keys": [b"k"]},
        {"ids": None},
        {"others": {7: BadRecord("beyond")}},
        {"others": {0: "no reason"}},
        {"others": [BadRecord("x")]},
        [b"k1", b"k2", b"bad"],
        None,
        KeyError("boom"),
    ],
)
def test_columns_that_do_not_fit_together_cost_nothing_but_the_time(change: object) -> None:
    assert read(InColumns({"change": change})) == GOOD


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"keys": [b"k1", "k2", b""]}, "the adapter's key is str; it must be bytes"),
        (
            {"keys": [b"k1", bytes(KEY_BYTES_MAX + 1), b"bad"]},
            "the adapter's key has 4,194,305 bytes; at most 4,194,304 are allowed",
        ),
        ({"times": [HOUR, 2.5, None]}, "the adapter's event_time_ns is float, not int"),
        ({"times": [HOUR, True, 0]}, "the adapter's event_time_ns is bool, not int"),
        ({"times": [HOUR, 2**63, 2**70]}, "the event time is out of range"),
        ({"ids": [b"i1", 0, None]}, "the adapter's event_id is int, not bytes"),
        ({"ids": [b"i1", b"", None]}, "the adapter's event_id is empty; an event without an id of its own has None"),
    ],
)
def test_a_row_that_breaks_the_contract_is_rejected_alone(change: dict[str, Any], reason: str) -> None:
    events, reasons = read(InColumns({"change": change}))
    assert events == GOOD[0][:1]
    assert reasons == [reason, *GOOD[1]]


def test_what_is_skipped_is_neither_read_nor_rejected() -> None:
    adapter = InColumns({"change": {"others": {0: Skipped("no event"), 2: BadRecord("why")}}})
    rows_due(adapter, "foreign", 1)  # the record that is not compared with its single result
    assert read(adapter) == (GOOD[0][1:], ["why"])


def test_what_is_overridden_is_not_asked_of_inherited_columns() -> None:
    assert InColumns({}).defines("header_columns")
    assert not Overridden({}).defines("header_columns")
    assert read(Overridden({}))[0] == [(b"id", b"own", 0)] * 3


def test_a_configured_side_answers_in_columns_and_a_subclass_by_its_own_headers() -> None:
    side = {"format": "jsonl", "key": "q", "id": "c", "time": {"field": "t", "unit": "s"}}

    class Own(ConfiguredAdapter):
        def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
            return super().foreign_header(record, file)._replace(key=b"own")

    options = {"primary": {"format": "jsonl", "key": "q"}, "foreign": side}
    records = [b'{"c":"1","q":"k","t":5}', b'{"c":"\\ud800","q":"k","t":5}', b'{"c":2,"q":"k","t":5}', b"{}"]
    adapter, file = ConfiguredAdapter(options), LogFile("f")
    made = adapter.header_columns(records, file)
    assert made == Adapter.header_columns(adapter, records, file)
    assert [type(each) for each in made.rows()] == [ForeignHeader, BadRecord, ForeignHeader, BadRecord]
    assert Own(options).header_columns(records[:1], file).keys == (b"own",)
