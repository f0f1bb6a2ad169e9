"""The fresh join on an executor: a foreign record and the primary record of its key -> what must have been written.

Pure over Arrow batches. The adapter is the joiner's; what is done with its answer is written here again, on purpose.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, Filtered, Joined, LogFile, Pair, Unpaired
from photon.adapters.faults import joined_fault, payload_fault
from photon.adapters.logs.identity import log_name
from photon.adapters.shown_records import shown_record
from photon.spark.verify.classify import FILTERED, JOINED, REJECTED, UNMATCHED, UNREADABLE
from photon.spark.verify.narrow_rows import LINE, hash64

FILES_MAX = 8192
"""Log files that are remembered."""
JOINABLE = (
    "datacentre string, log string, offset bigint, header binary, event_id binary, digest binary, key binary, "
    "event_time_ns bigint, hour bigint, record binary, unreadable string, unread boolean, "
    "p_log string, p_name string, p_offset bigint, p_header binary, p_record binary"
)
"""What comes in: a foreign record and the primary record of its key, ``p_…`` null if it has none."""


class ExpectedLine(NamedTuple):
    """What one foreign record should give; hashes as in ``rows.NARROW``."""

    kind: str
    foreign: int | None
    record: int | None
    primary: int | None


class FreshJoin:
    """Applies an adapter to pairs."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._files: dict[tuple[str, bytes | None], LogFile] = {}

    def file(self, log: str, header: bytes | None) -> LogFile:
        """Returns the same object for the same file."""
        known = self._files.get((log, header))
        if known is None:
            if len(self._files) >= FILES_MAX:
                self._files.clear()
            known = self._files[log, header] = LogFile(log, header or b"")
        return known

    def expected(self, row: dict[str, Any]) -> ExpectedLine:
        """What must have been written of a row of JOINABLE."""
        record: bytes = row["record"]
        shown = shown_record(self._adapter, record, self.file(row["log"], row["header"]))
        text = None if shown is None else hash64(shown)
        if row["unreadable"] is not None:
            return ExpectedLine(UNREADABLE, None, text, None)
        primary: bytes | None = row["p_record"]
        if primary is None:
            return ExpectedLine(UNMATCHED, None, text, None)
        result = self._join(record, self.file(row["log"], row["header"]), primary,
                            self.file(row["p_name"], row["p_header"]))  # fmt: skip
        if isinstance(result, Filtered | Unpaired):
            return ExpectedLine(FILTERED if isinstance(result, Filtered) else UNMATCHED, None, text, None)
        if result is None:
            return ExpectedLine(REJECTED, None, text, None)
        attached = payload_text(result.primary, primary)
        return ExpectedLine(JOINED, hash64(payload_text(result.foreign, record)), text, hash64(attached))

    def _join(
        self, record: bytes, file: LogFile, primary: bytes, primary_file: LogFile
    ) -> Joined | Filtered | Unpaired | None:
        """None: the adapter raises, does not come back, or gives what cannot be written: it is rejected."""
        pair = Pair(record, file, primary, primary_file)
        (result,) = Guard(self._adapter).each([pair], lambda each: self._adapter.join(*each))
        if isinstance(result, Filtered | Unpaired):
            return result
        return result if isinstance(result, Joined) and not joined_fault(result) else None

    def settled(self, row: dict[str, Any], expected: ExpectedLine) -> ExpectedLine:
        """With what stands of an unmatched event: as the join has it now in ``record``, the other in ``foreign``; its
        record may be older than the setting."""
        if expected.kind != UNMATCHED:
            return expected
        asked = [(row["record"], self.file(row["log"], row["header"]))]
        made: list[object] = Guard(self._adapter).each(asked, lambda each: self._adapter.unmatched_payload(*each))
        (payload,) = made
        wrong = isinstance(payload, Fault) or payload_fault(payload) is not None
        if not self._adapter.unmatched_inline:
            return expected if wrong else expected._replace(foreign=hash64(_text_of(payload, row["record"])))
        if wrong:
            return expected._replace(kind=REJECTED)
        return expected._replace(foreign=expected.record, record=hash64(_text_of(payload, row["record"])))


def _text_of(payload: object, record: bytes) -> bytes:
    return payload_text(payload if isinstance(payload, bytes) else None, record)


def payload_text(payload: bytes | None, record: bytes) -> bytes:
    """As it stands in a joined line; base64 of the record where it is no text of its format."""
    return b'"' + b64encode(record) + b'"' if payload is None else payload


def lines_of(make_adapter: Callable[[], Adapter], from_hour: int, to_hour: int) -> Any:
    """A function for ``mapInArrow``: JOINABLE -> NARROW, one line for each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fresh = FreshJoin(make_adapter())
        names: dict[str, str] = {}
        for batch in batches:
            yield _narrow(batch, fresh, names, from_hour, to_hour)

    return run


def _narrow(batch: pa.RecordBatch, fresh: FreshJoin, names: dict[str, str], begin: int, end: int) -> pa.RecordBatch:
    rows = batch.to_pylist()
    expected = [fresh.settled(row, fresh.expected(row)) for row in rows]
    n = len(rows)
    for name in {row["log"] for row in rows} - names.keys():
        names[name] = log_name(name)
    column = {name: batch.column(name) for name in batch.schema.names}
    judged = [row["hour"] is None or begin <= row["hour"] < end for row in rows]
    strings, longs = pa.nulls(n, pa.string()), pa.nulls(n, pa.int64())
    joined = [each.kind for each in expected]
    made = {
        "digest": column["digest"],
        "role": pa.array([LINE] * n, pa.int8()),
        "judged": pa.array(judged, pa.bool_()),
        "datacentre": column["datacentre"],
        "kind": pa.array(joined, pa.string()),
        "log": pa.array([names[row["log"]] for row in rows], pa.string()),
        "offset": column["offset"],
        "file": strings,
        "file_offset": longs,
        "token": strings,
        "event_time_ns": column["event_time_ns"],
        "hour": column["hour"],
        "key": column["key"],
        "foreign": pa.array([each.foreign for each in expected], pa.int64()),
        "record": pa.array([each.record for each in expected], pa.int64()),
        "primary": pa.array([each.primary for each in expected], pa.int64()),
        "primary_log": column["p_log"],
        "primary_offset": column["p_offset"],
        "event_id": column["event_id"],
        "name": column["log"],
        "state": strings,
        "slot": strings,
        "retired": pa.nulls(n, pa.bool_()),
        "generation": longs,
        "unread": column["unread"],
        "fresh": pa.nulls(n, pa.bool_()),
    }
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
