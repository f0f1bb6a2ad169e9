"""The interface between a format and the configured adapter: one side's records, one at a time and many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.times import TimeReader, YearlessTime

TimeField = str | tuple[str, ...] | None  # several: their texts are joined by a blank
LAYOUTS_MAX = 1024  # distinct headers remembered; logs of one kind have a few
_Fields = TypeVar("_Fields")


def without(keys: list[bytes | None], absent: frozenset[bytes]) -> list[bytes | None]:
    """Returns the keys, with ``None`` for those that mark an absent value."""
    if not absent or absent.isdisjoint(keys):
        return keys
    return [None if key in absent else key for key in keys]


class Stop(NamedTuple):
    """The point where reading a record fails: the configured part ``wanted`` does not fit at byte ``at``."""

    at: int
    wanted: str


class SidePayloads(NamedTuple):
    """The payload() of each record; exceptions are in ``bad``, by row."""

    payloads: Sequence[bytes | None]
    bad: Mapping[int, BadRecord]


class SideReader(ABC):
    """Reads the records of one side. Methods mean the same as their namesakes in ``contract.Adapter``."""

    @abstractmethod
    def key(self, record: bytes, file: LogFile) -> bytes:
        """Returns a record's key. Raises BadRecord."""

    @abstractmethod
    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        """Returns a record's header. Raises BadRecord."""

    @abstractmethod
    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        """Returns JSON on one line; ``None`` if the record is not UTF-8. Raises BadRecord."""

    def payloads(self, records: Sequence[bytes], files: Sequence[LogFile]) -> SidePayloads:
        out: list[bytes | None] = []
        bad = {}
        payload = self.payload
        for record, file in zip(records, files, strict=True):
            try:
                out.append(payload(record, file))
            except BadRecord as why:
                bad[len(out)] = why
                out.append(None)
        return SidePayloads(out, bad)

    def stops_at(self, record: bytes) -> Stop | None:
        """Returns where reading a rejected record fails, for display; ``None`` if unknown."""
        return None

    def headers(self, records: Sequence[bytes], file: LogFile) -> Headers:
        out: list[ForeignHeader | BadRecord] = []
        header = self.header
        for record in records:
            try:
                out.append(header(record, file))
            except BadRecord as bad:
                out.append(bad)
        return Headers.of(out)

    def times(self, records: Sequence[bytes], file: LogFile) -> Headers:
        """Returns each record's event time, in headers whose keys have no meaning."""
        return self.headers(records, file)

    def keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        """Returns the key() of each record, ``None`` for a bad one."""
        out: list[bytes | None] = []
        for record in records:
            try:
                out.append(self.key(record, file))
            except BadRecord:
                out.append(None)
        return out

    def _key_or_none(self, record: bytes, file: LogFile) -> bytes | None:
        try:
            return self.key(record, file)
        except BadRecord:
            return None

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        """Returns the key() of each line of the block, ``None`` for a bad record."""
        return self.keys_of([line.removesuffix(b"\r") for line in block.split(b"\n")[:-1]], file)

    def located_keys(self, block: bytes, file: LogFile) -> tuple[list[bytes | None], npt.NDArray[np.int64]] | None:
        """Returns keys() and the start of each line if the format computes it anyway; else ``None``."""
        return None


class FieldsSide(SideReader, Generic[_Fields]):
    """Base of formats that split a record into fields and take key, id and time from these fields."""

    def __init__(
        self,
        key: str,
        id_field: str | None = None,
        time_field: TimeField = None,
        time: TimeReader | None = None,
        *,
        absent: frozenset[bytes] = frozenset(),
    ) -> None:
        """``absent``: marks of an absent value. Only headers need ``time_field`` and ``time``."""
        fields = (time_field,) if isinstance(time_field, str) else time_field or ()
        self._times = [f"time {at}" if at else "time" for at in range(len(fields))]
        roles = {"key": key, "id": id_field, **dict(zip(self._times, fields, strict=True))}
        self._names = {role: name for role, name in roles.items() if name is not None}
        self._shown_times = ", ".join(map(repr, fields))
        self._time = time
        plain = len(fields) == 1 and not isinstance(time, YearlessTime)
        self._read: Callable[[bytes], int] | None = time.from_text if plain and time is not None else None
        self._absent = absent

    @abstractmethod
    def _fields(self, record: bytes, file: LogFile) -> _Fields:
        """Splits a record into fields. Raises BadRecord."""

    @abstractmethod
    def _value(self, fields: _Fields, role: str) -> bytes:
        """Returns the value of the field configured for ``role``. Raises BadRecord if it is missing or empty."""

    def key(self, record: bytes, file: LogFile) -> bytes:
        return self._value(self._fields(record, file), "key")

    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        fields = self._fields(record, file)
        key = self._value(
            fields, "key"
        )  # before the time, which is read from the key's field if it has none of its own
        if self._read is not None:
            text, read = self._value(fields, "time"), self._read
        else:
            text, read = self._other_time(fields, file)
        try:
            time_ns = read(text)
        except ValueError as error:
            raise BadRecord(f"time field {self._shown_times} {error}") from None
        return ForeignHeader(key, time_ns, self._value(fields, "id") if "id" in self._names else None)

    def _other_time(self, fields: _Fields, file: LogFile) -> tuple[bytes, Callable[[bytes], int]]:
        """Returns the text and the reader of a time that is in several fields or needs the file. Raises BadRecord."""
        if self._time is None or not self._times:
            raise BadRecord("no time field is configured for this side")
        text = b" ".join([self._value(fields, role) for role in self._times])
        return text, self._time.of_file(file).from_text


def column_places(names: Sequence[bytes], wanted: Mapping[str, str]) -> dict[str, int] | str:
    """Returns the position of each role's column, or why a file with these columns cannot be read."""
    for role, name in wanted.items():
        if name.encode() not in names:
            known = ", ".join(map(_shown, names[:20]))
            return f"header: {role} column {name!r} is missing; the file has {known}"[:400]
        if names.count(name.encode()) > 1:
            return f"header: {role} column {name!r} occurs twice; rename the columns: columns = […], skip_lines = 1"
    return {role: names.index(name.encode()) for role, name in wanted.items()}


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))
