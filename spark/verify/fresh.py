"""The fresh join on an executor: derives the expected output from a foreign record and the primary records of its
key.

Pure over Arrow batches. It uses the joiner's adapter, but deliberately reimplements the handling of its answers.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import repeat
from operator import xor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, Filtered, Joined, LogFile, Pair, Pairs, Unpaired
from photon.adapters.faults import joined_fault, payload_fault
from photon.adapters.logs.identity import log_name
from photon.adapters.shown_records import shown, shown_record
from photon.joiner.matching import (
    ESCAPED_BYTES,
    NONE_BEFORE_REASON,
    NONE_WITHIN_REASON,
    PAIRS_BYTES_MAX,
)
from photon.joiner.verdicts import ABSENT_REASON, REASON_CHARS_MAX
from photon.spark.arrow_columns import mapped
from photon.spark.primary_sets import is_too_large
from photon.spark.verify.classify import FILTERED, JOINED, REJECTED, UNMATCHED, UNREADABLE, JoinedPair
from photon.spark.verify.narrow_rows import LINE, hash64, hash_of_pair

FILES_MAX = 8192  # log files that are remembered
FOREIGN = (
    "datacentre string, log string, offset bigint, header binary, event_id binary, digest binary, key binary, "
    "event_time_ns bigint, hour bigint, record binary, unreadable string, unread boolean"
)
# ``members`` of NARROW.
MEMBERS = pa.list_(
    pa.struct([("foreign", pa.int64()), ("primary", pa.int64()),
               ("primary_log", pa.string()), ("primary_offset", pa.int64())])
)  # fmt: skip
# The primary record of its key, null if it has none; or ``primaries``, an array of such structs, if the join uses all
# of them (``primary_sets``). Together with FOREIGN these are the input columns.
PRIMARY = ("p_log", "p_name", "p_offset", "p_header", "p_record")
Candidate = Mapping[str, Any]  # PRIMARY of one record


class ExpectedLine(NamedTuple):
    """The expected result for one foreign record; hashes as in ``rows.NARROW``."""

    kind: str
    foreign: int | None = None
    record: int | None = None
    primary: int | None = None
    primary_log: str | None = None
    primary_offset: int | None = None
    # With ``match = "all"``: all of its set, in order; then ``foreign`` and the members about one primary event are
    # None.
    pairs: Sequence[JoinedPair] | None = None
    reason: int | None = None  # why it is unmatched or filtered

    def members(self) -> list[dict[str, Any]] | None:
        return None if self.pairs is None else [each._asdict() for each in self.pairs]

    def pairs_hash(self) -> int | None:
        if self.pairs is None:
            return None
        return reduce(xor, (hash_of_pair(at, len(self.pairs), *each) for at, each in enumerate(self.pairs, 1)))


class FreshJoin:
    """Joins pairs with an adapter."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._is_own = type(adapter) is ConfiguredAdapter  # true for adapters whose payloads are JSON by construction
        self._files: dict[tuple[str, bytes | None], LogFile] = {}

    def file(self, log: str, header: bytes | None) -> LogFile:
        """Returns a LogFile, the same object for the same file."""
        known = self._files.get((log, header))
        if known is None:
            if len(self._files) >= FILES_MAX:
                self._files.clear()
            known = self._files[log, header] = LogFile(log, header or b"")
        return known

    def lines(self, batch: pa.RecordBatch) -> list[ExpectedLine]:
        """Returns the expected line for each row of FOREIGN with its primary records: ``expected``, then ``settled``.
        Calls the adapter only once if its method for many records is Photon's own."""
        adapter = self._adapter
        if adapter.matching.whole_sets:
            return [self.settled(row, self.expected(row)) for row in batch.to_pylist()]
        records, logs, headers, unreadable, primaries = (
            batch.column(name).to_pylist() for name in ("record", "log", "header", "unreadable", "p_record")
        )
        files = list(map(self.file, logs, headers))
        asked = list(zip(records, files, repeat("")))
        texts = [None if each.record is None else hash64(each.record) for each in shown(adapter, asked)]
        kinds = [UNMATCHED if why is None else UNREADABLE for why in unreadable]
        lines = [
            ExpectedLine(kind, record=text, reason=_ABSENT if kind == UNMATCHED else None)
            for kind, text in zip(kinds, texts, strict=True)
        ]
        rows = [at for at, record in enumerate(primaries) if record is not None and unreadable[at] is None]
        if rows:
            pairs = batch.take(pa.array(rows, pa.int32()))
            p_logs, p_offsets, names, p_headers = (
                pairs.column(name).to_pylist() for name in ("p_log", "p_offset", "p_name", "p_header")
            )
            p_records = [primaries[at] for at in rows]
            made = self._made_of_all(
                Pairs([records[at] for at in rows], [files[at] for at in rows], p_records,
                      list(map(self.file, names, p_headers)))
            )  # fmt: skip
            for at, p_record, log, offset, each in zip(rows, p_records, p_logs, p_offsets, made, strict=True):
                lines[at] = self._line((records[at], files[at]), p_record, log, offset, each, texts[at])
        left = [at for at, line in enumerate(lines) if line.kind == UNMATCHED]
        payloads = Guard(adapter).each(left, lambda at: adapter.unmatched_payload(records[at], files[at]))
        for at, payload in zip(left, payloads, strict=True):
            lines[at] = self._with_payload(lines[at], records[at], payload)
        return lines

    def _made_of_all(self, pairs: Pairs) -> Sequence[object]:
        adapter, guard = self._adapter, Guard(self._adapter)
        if self._is_own:
            made = guard.many(lambda: adapter.join_columns(pairs))
            if not isinstance(made, Fault):
                return made.rows()
        return guard.each(list(zip(*pairs, strict=True)), lambda pair: adapter.join(*pair))

    def expected(self, row: dict[str, Any]) -> ExpectedLine:
        """Returns the expected line for a row of FOREIGN with its primary records."""
        shown = shown_record(self._adapter, row["record"], self.file(row["log"], row["header"]))
        text = None if shown is None else hash64(shown)
        if row["unreadable"] is not None:
            return ExpectedLine(UNREADABLE, record=text)
        if self._adapter.matching.whole_sets:
            return self._of_set(row, text)
        if row["p_record"] is None:
            return ExpectedLine(UNMATCHED, record=text, reason=_ABSENT)
        return self._line_of(row, row, self._made(row, row), text)

    def _of_set(self, row: dict[str, Any], text: int | None) -> ExpectedLine:
        """Decides the verdict of an event with several pairs. If one pair is rejected, the event is. If one is
        joined, unpaired and filtered pairs are left out; otherwise the first pair decides."""
        has: Sequence[Candidate] = row["primaries"] or ()
        if is_too_large([each["p_record"] for each in has]):
            return ExpectedLine(REJECTED, record=text)
        chosen = self._chosen(row["event_time_ns"], has)
        if isinstance(chosen, ExpectedLine):
            return chosen._replace(record=text)
        made = [self._made(row, each) for each in chosen]
        found = [self._line_of(row, *each, text) for each in zip(chosen, made, strict=True)]
        if not found:
            none = NONE_BEFORE_REASON if self._adapter.matching.before_ns is None else NONE_WITHIN_REASON
            return ExpectedLine(UNMATCHED, record=text, reason=hash64(none.encode()) if has else _ABSENT)
        if self._adapter.matching.match == "all" and _size(row, chosen, made) > PAIRS_BYTES_MAX:
            first = chosen[0]
            return ExpectedLine(REJECTED, record=text, primary_log=first["p_log"], primary_offset=first["p_offset"])
        if bad := next((each for each in found if each.kind == REJECTED), None):
            return bad
        joined = [each for each in found if each.kind == JOINED]
        if not joined or self._adapter.matching.match == "latest":
            return found[0]
        pairs = [JoinedPair(one.foreign, one.primary, one.primary_log, one.primary_offset) for one in joined]
        return ExpectedLine(JOINED, record=text, pairs=pairs)

    def _chosen(self, time_ns: int, has: Sequence[Candidate]) -> Sequence[Candidate] | ExpectedLine:
        """Returns the primary events to join, or a rejection if one of them has no time."""
        matching = self._adapter.matching
        if not matching.needs_time:
            return has
        oldest = None if matching.before_ns is None else time_ns - matching.before_ns
        newest = time_ns if matching.match == "latest" else time_ns + (matching.after_ns or 0)
        near: list[tuple[int, Candidate]] = []
        times = Guard(self._adapter).each(has, self._time)
        for time, each in zip(times, has, strict=True):
            if not isinstance(time, int):
                return ExpectedLine(REJECTED, primary_log=each["p_log"], primary_offset=each["p_offset"])
            if time <= newest and (oldest is None or time >= oldest):
                near.append((time, each))
        if matching.match == "all":
            return [each for _, each in near]
        last = max((time for time, _ in near), default=None)
        return [each for time, each in near if time == last][-1:]

    def _time(self, primary: Candidate) -> int:
        return self._adapter.primary_time(primary["p_record"], self.file(primary["p_name"], primary["p_header"]))

    def _made(self, row: dict[str, Any], primary: Candidate) -> object:
        """Returns the adapter's result for a pair."""
        pair = Pair(row["record"], self.file(row["log"], row["header"]),
                    primary["p_record"], self.file(primary["p_name"], primary["p_header"]))  # fmt: skip
        (made,) = Guard(self._adapter).each([pair], lambda each: self._adapter.join(*each))
        return made

    def settled(self, row: dict[str, Any], expected: ExpectedLine) -> ExpectedLine:
        """Fills in the payload hashes of an unmatched event: in ``record`` for the current setting, in ``foreign``
        for the opposite one, as the output record may be older than the setting."""
        if expected.kind != UNMATCHED:
            return expected
        asked = [(row["record"], self.file(row["log"], row["header"]))]
        (payload,) = Guard(self._adapter).each(asked, lambda each: self._adapter.unmatched_payload(*each))
        return self._with_payload(expected, row["record"], payload)

    def _with_payload(self, expected: ExpectedLine, record: bytes, payload: object) -> ExpectedLine:
        wrong = isinstance(payload, Fault) or (not self._is_own and payload_fault(payload) is not None)
        if not self._adapter.unmatched_inline:
            return expected if wrong else expected._replace(foreign=hash64(_text_of(payload, record)))
        if wrong:
            return expected._replace(kind=REJECTED, reason=None)
        return expected._replace(foreign=expected.record, record=hash64(_text_of(payload, record)))

    def _line_of(self, row: dict[str, Any], primary: Candidate, made: object, text: int | None) -> ExpectedLine:
        place = primary["p_log"], primary["p_offset"]
        foreign = row["record"], self.file(row["log"], row["header"])
        return self._line(foreign, primary["p_record"], *place, made, text)

    def _line(
        self, foreign: tuple[bytes, LogFile], primary: bytes, log: str, offset: int, made: object, text: int | None
    ) -> ExpectedLine:
        """Returns a pair's line: REJECTED if the adapter raises, does not return, or returns an unwritable result."""
        reason = None
        if isinstance(made, Filtered | Unpaired):
            kind = FILTERED if isinstance(made, Filtered) else UNMATCHED
            (what,) = shown(self._adapter, [(*foreign, str(made.reason)[:REASON_CHARS_MAX])])
            reason = hash64(what.reason.encode("utf-8", "backslashreplace"))
        elif not isinstance(made, Joined) or (not self._is_own and joined_fault(made)):
            kind = REJECTED
        else:
            foreign_text, primary_text = payload_text(made.foreign, foreign[0]), payload_text(made.primary, primary)
            return ExpectedLine(JOINED, hash64(foreign_text), text, hash64(primary_text), log, offset)
        return ExpectedLine(kind, record=text, primary_log=log, primary_offset=offset, reason=reason)


_ABSENT = hash64(ABSENT_REASON.encode())


def _size(row: dict[str, Any], primaries: Sequence[Candidate], made: Sequence[object]) -> int:
    """Returns the size of an event's pairs: bytes of their payloads (or records), ids and keys."""
    alone = ESCAPED_BYTES * (len(row["event_id"]) + len(row["key"]))
    size = 0
    for each, result in zip(primaries, made, strict=True):
        foreign, primary = (result.foreign, result.primary) if isinstance(result, Joined) else (None, None)
        size += alone + len(foreign or row["record"]) + len(primary or each["p_record"])
    return size


def _text_of(payload: object, record: bytes) -> bytes:
    return payload_text(payload if isinstance(payload, bytes) else None, record)


def payload_text(payload: bytes | None, record: bytes) -> bytes:
    """Returns the payload as in a joined line; without a payload, base64 of the record."""
    return b'"' + b64encode(record) + b'"' if payload is None else payload


def lines_of(make_adapter: Callable[[], Adapter], from_hour: int, to_hour: int) -> Any:
    """Returns a function for ``mapInArrow``: FOREIGN with primary records -> NARROW, one line for each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fresh = FreshJoin(make_adapter())
        for batch in batches:
            yield _narrow(batch, fresh, from_hour, to_hour)

    return run


def _narrow(batch: pa.RecordBatch, fresh: FreshJoin, begin: int, end: int) -> pa.RecordBatch:
    expected = fresh.lines(batch)
    n = len(expected)
    column = {name: batch.column(name) for name in batch.schema.names}
    hours = column["hour"]
    judged = pc.and_kleene(pc.greater_equal(hours, begin), pc.less(hours, end)).fill_null(True)
    strings, longs = pa.nulls(n, pa.string()), pa.nulls(n, pa.int64())
    kinds, foreign, records, primary, primary_logs, primary_offsets, _, reasons = (
        zip(*expected, strict=True) if n else ((),) * len(ExpectedLine._fields)
    )
    sets = [each for each in expected if each.pairs is not None]
    made = {
        "digest": column["digest"],
        "role": pa.repeat(pa.scalar(LINE, pa.int8()), n),
        "judged": judged,
        "datacentre": column["datacentre"],
        "kind": pa.array(kinds, pa.string()),
        "log": mapped(column["log"], log_name),
        "offset": column["offset"],
        "file": strings,
        "file_offset": longs,
        "token": strings,
        "event_time_ns": column["event_time_ns"],
        "hour": hours,
        "key": column["key"],
        "foreign": pa.array(foreign, pa.int64()),
        "record": pa.array(records, pa.int64()),
        "primary": pa.array(primary, pa.int64()),
        "primary_log": pa.array(primary_logs, pa.string()),
        "primary_offset": pa.array(primary_offsets, pa.int64()),
        "event_id": column["event_id"],
        "name": column["log"],
        "state": strings,
        "slot": strings,
        "retired": pa.nulls(n, pa.bool_()),
        "generation": longs,
        "unread": column["unread"],
        "fresh": pa.nulls(n, pa.bool_()),
        "pair": longs,
        "pairs": longs,
        "pairs_hash": pa.array([each.pairs_hash() for each in expected], pa.int64()) if sets else longs,
        "reason": pa.array(reasons, pa.int64()),
        "added": pa.nulls(n, pa.bool_()),
        "members": pa.array([each.members() for each in expected], MEMBERS) if sets else pa.nulls(n, MEMBERS),
    }
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
