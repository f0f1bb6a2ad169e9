"""Options of the data source (event times, payload columns), and the offsets of a stream.

Pure; needs no pyspark. The option ``columns`` gives fields of the payloads as typed columns::

    columns = "user string from foreign.user.id, price double from primary.items[0].price"

A path begins with foreign or primary; a missing value, or one of another type, is null.

An offset is a cursor of ``photon.outputs`` for each datacentre, and optionally the watermark of the lines read up to
there. Offsets never move back: files that a slot's directory temporarily does not list are not read again later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import msgspec
import orjson

from photon.adapters.formats.json_values import parse_line
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.ranges import read_range
from photon.spark.outputs import RangeWork
from photon.spark.stream_watermarks import Mark

VERSION = 1
Offsets = Mapping[str, Cursor]  # Datacentre -> how far it was read.
COLUMNS_MAX = 1000
Path = tuple[str | int, ...]
_COLUMN = re.compile(
    r"\s*(\w+)\s+(\w+)\s+from\s+(foreign|primary)((?:\.(?:[^\s.,\[\]`]+|`[^`]+`)|\[\d{1,9}\])*)\s*(?:,|\Z)"
)
_STEP = re.compile(r"\.(?:`([^`]+)`|([^\s.,\[\]`]+))|\[(\d+)\]")
_INT64 = 2**63


class TimeRange(NamedTuple):
    """Event times in [``begin_ns``, ``end_ns``); ``None`` means unbounded."""

    begin_ns: int | None = None
    end_ns: int | None = None

    def rows(self, times_ns: Sequence[int | None]) -> list[int]:
        """Returns the indexes of times within the range; ``None`` is only in the unbounded range."""
        if self == TimeRange():
            return list(range(len(times_ns)))
        return [row for row, at in enumerate(times_ns) if at is not None and self._meets(at, at)]

    def keeps_file(self, work: RangeWork) -> bool:
        """True if the file may have rows within the range."""
        return work.first_ns is None or work.last_ns is None or self._meets(work.first_ns, work.last_ns)

    def _meets(self, first_ns: int, last_ns: int) -> bool:
        return (self.begin_ns is None or last_ns >= self.begin_ns) and (self.end_ns is None or first_ns < self.end_ns)


class OffsetUnreadable(PhotonError):
    """A checkpoint holds an offset in an unknown format. The message is one line."""


def encoded(offsets: Offsets, mark: Mark | None = None) -> dict[str, Any]:
    """Encodes an offset for Spark's checkpoint. ``mark`` is ``None`` if the stream carries no watermark."""
    cursors = {name: each.encode().decode() for name, each in sorted(offsets.items())}
    return {"version": VERSION, "cursors": cursors} | ({} if mark is None else {"watermark": asdict(mark)})


def decoded(offset: Mapping[str, Any]) -> dict[str, Cursor]:
    """Returns the cursors of an encoded offset. Raises OffsetUnreadable, CursorUnreadable."""
    if offset.get("version") != VERSION or not isinstance(offset.get("cursors"), dict):
        raise OffsetUnreadable(
            f"checkpoint: {offset!r:.100} is not an offset of version {VERSION}; start with a new checkpoint"
        )
    return {name: Cursor.decode(text.encode(), f"checkpoint, {name}") for name, text in offset["cursors"].items()}


def mark_of(offset: Mapping[str, Any], name: str = "watermark") -> Mark:
    """Returns the watermark of an offset; UNKNOWN if it has none. Raises OffsetUnreadable."""
    try:
        return msgspec.convert(offset.get(name, {}), Mark)
    except msgspec.ValidationError as error:
        raise OffsetUnreadable(
            f"checkpoint: its {name} cannot be read ({error}); start with a new checkpoint"
        ) from None


def furthest(one: Cursor, other: Cursor) -> Cursor:
    """Returns the later position of each log. Raises OtherOutput if the cursors belong to different outputs."""
    positions = dict(one.positions)
    for place, at in other.positions.items():
        positions[place] = max(at, positions.get(place, at))
    return Cursor(positions, one.within(other.output, "the current output").output)


def bounded(start: Cursor, end: Cursor, works: Iterable[RangeWork], bytes_max: int) -> Cursor:
    """Returns the cursor ``bytes_max`` bytes after ``start``, or at ``end``; each log gets the same share of the
    bytes."""
    by_log: dict[OutputLog, list[RangeWork]] = {}
    for work in works:
        kind, _, _ = work.name.partition("/")
        by_log.setdefault(OutputLog(work.slot, kind), []).append(work)
    share = max(bytes_max // max(len(by_log), 1), 1)
    positions = dict(start.positions)
    for place, parts in by_log.items():
        left = share
        for work in parts:
            taken = min(left, work.end - work.start)
            if taken:
                positions[place] = Position(number_of(work), work.start + taken)
            left -= taken
    return _past_damage(Cursor(positions, start.output), end, by_log)


def _past_damage(at: Cursor, end: Cursor, by_log: Mapping[OutputLog, Sequence[RangeWork]]) -> Cursor:
    """If a log's last range is read, moves the log to ``end``: only damaged ranges, which are never read, lie
    between."""
    positions = dict(at.positions)
    for place, to in end.positions.items():
        last = by_log.get(place, ())[-1:]
        if all(positions.get(place) == (number_of(work), work.end) for work in last):
            positions[place] = max(to, positions.get(place, to))
    return Cursor(positions, at.output)


def counted(start: Cursor, end: Cursor, works: Iterable[RangeWork], records: int, disk: Disk) -> Cursor:
    """Reads the ranges. Returns the cursor after at most ``records`` of their lines: the same share of each log, and
    at least one line of each. Raises OutputMissing, OSError."""
    by_log: dict[OutputLog, list[RangeWork]] = {}
    for work in works:
        by_log.setdefault(OutputLog(work.slot, work.name.partition("/")[0]), []).append(work)
    share = max(records // max(len(by_log), 1), 1)
    positions = dict(start.positions)
    for place, parts in by_log.items():
        left = share
        for work in parts:
            if left == 0:
                break
            left, at = _after(work, left, disk)
            positions[place] = Position(number_of(work), at)
    return _past_damage(Cursor(positions, start.output), end, by_log)


def _after(work: RangeWork, most: int, disk: Disk) -> tuple[int, int]:
    """Skips up to ``most`` lines of the range. Returns how many of ``most`` are left to skip, and the offset after
    the last skipped line."""
    for lines in read_range(disk, work.part()):
        if (found := lines.data.count(b"\n")) < most:
            most -= found
            continue
        at = 0
        for _ in range(most):
            at = lines.data.index(b"\n", at) + 1
        return 0, min(lines.offset + at, work.end)
    return most, work.end


def number_of(work: RangeWork) -> int:
    return work.part().file.number


@dataclass(frozen=True, slots=True)
class PayloadColumn:
    """One column. ``kind``: its type in Spark's DDL."""

    name: str
    kind: str
    side: str
    path: Path

    def value(self, payload: Any) -> Any:
        """Returns the column's value in a parsed payload."""
        for step in self.path:
            if isinstance(payload, dict) and isinstance(step, str):
                payload = payload.get(step)
            elif isinstance(payload, list) and isinstance(step, int):
                payload = payload[step] if step < len(payload) else None
            else:
                return None
        return _KINDS[self.kind](payload)


def parse_columns(text: str, taken: Mapping[str, str]) -> list[PayloadColumn]:
    """Parses the option ``columns``. ``taken``: names of existing columns. Raises UsageError."""
    found: list[PayloadColumn] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _COLUMN.match(text, at)
        if match is None:
            raise _wrong(text[at : at + 60], 'write "NAME TYPE from foreign.path.to[0].field", separated by commas')
        name, kind, side, path = match.groups()
        if kind.lower() not in _KINDS:
            raise _wrong(f"{name} {kind}", f"the type must be one of {', '.join(_KINDS)}")
        if name in taken or name in {each.name for each in found}:
            raise _wrong(name, "another column has this name; choose a different one")
        steps = [int(index) if index else quoted or plain for quoted, plain, index in _STEP.findall(path)]
        found.append(PayloadColumn(name, kind.lower(), side, tuple(steps)))
        at = match.end()
    if len(found) > COLUMNS_MAX:
        raise _wrong(f"{len(found)} columns", f"at most {COLUMNS_MAX}")
    return found


def parsed(payload: bytes | None) -> Any:
    """Parses a payload; ``None`` if it is not JSON. A number beyond all floats (1e999) becomes text."""
    if payload is None:
        return None
    try:
        return parse_line(payload)
    except ValueError:
        return None


def _wrong(what: str, todo: str) -> UsageError:
    return UsageError(f"columns: {what!r} is not supported; {todo}")


def _string(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _bigint(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _double(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "string": _string,
    "bigint": _bigint,
    "double": _double,
    "boolean": _boolean,
}
