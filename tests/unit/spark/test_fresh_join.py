"""The fresh join of a batch is that of its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, Filtered, Joined, LogFile, Unpaired
from photon.spark.verify.fresh import FreshJoin

TIME = {"field": "t", "unit": "s"}
SIDES = {
    "primary": {"format": "jsonl", "key": "k", "time": TIME},
    "foreign": {"format": "jsonl", "key": "k", "id": "i", "time": TIME},
}
RECORDS = (b'{"k":"a","t":5,"i":"x"}', b'{"k":"a","t":7,"i":"y"} ', b'{"k":"a",\r "t":5,"i":"\xff"}', b"{", b"")
TYPES = {
    "record": pa.binary(), "log": pa.string(), "header": pa.binary(), "unreadable": pa.string(),
    "p_record": pa.binary(), "p_log": pa.string(), "p_name": pa.string(), "p_offset": pa.int64(),
    "p_header": pa.binary(),
}  # fmt: skip


class Own(ConfiguredAdapter):
    def join(
        self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile
    ) -> Joined | Filtered | Unpaired:
        if primary == RECORDS[1]:
            return Filtered("why")
        if foreign == RECORDS[0]:
            raise BadRecord("why")
        return Joined(b"1\n2" if foreign == RECORDS[1] else b"1", None)


def bounded() -> Adapter:
    return bounded_adapter(ConfiguredAdapter(SIDES), Bounds(10**9, 0), "x")


def inline(kind: type[ConfiguredAdapter]) -> Adapter:
    adapter = kind(SIDES)
    adapter.unmatched_inline = True
    return adapter


ADAPTERS = (ConfiguredAdapter(SIDES), Own(SIDES), bounded(), inline(ConfiguredAdapter), inline(Own))
ROWS = st.tuples(st.sampled_from(RECORDS), st.sampled_from([None, *RECORDS]), st.booleans(), st.integers(0, 1))


@pytest.mark.parametrize("adapter", ADAPTERS, ids=["configured", "own", "bounded", "inline", "own inline"])
@given(st.lists(ROWS, max_size=6))
def test_many_are_as_each_alone(adapter: Adapter, some: list[tuple[bytes, bytes | None, bool, int]]) -> None:
    rows: list[dict[str, Any]] = []
    for at, (record, primary, bad, header) in enumerate(some):
        row: dict[str, Any] = dict.fromkeys(TYPES)
        row |= {"record": record, "log": "a.log"}
        row |= {"header": b"h" if header else None, "unreadable": "why" if bad else None}
        if primary is not None and not bad:
            row |= {"p_record": primary, "p_log": "q", "p_name": "q.1", "p_offset": at}
        rows.append(row)
    fresh = FreshJoin(adapter)
    batch = pa.RecordBatch.from_pylist(rows, pa.schema(list(TYPES.items())))
    assert fresh.lines(batch) == [fresh.settled(row, fresh.expected(row)) for row in rows]
