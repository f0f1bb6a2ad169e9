"""Keys of several fields, and keys and ids that are a part of a field or normalised, built on readers of one field.

A key of several parts is their text, joined as in ``key_lists``. A key of one part is that part unchanged. Each part
is read as a key in its own right, by the format's own fast paths, with the same rules for valid keys. If one part
holds several keys (``each``), the event has one key for each, and its own key is their list.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.formats.base import SidePayloads, SideReader, Stop
from photon.adapters.formats.part_rules import KeyPart, Normaliser, members_of
from photon.adapters.key_lists import ESCAPE, SEPARATOR, joined, list_of_keys

Column = Sequence[bytes | None]


class KeyPartsSide(SideReader):
    """Reads one side through ``readers``, one for each part; the first one also reads the rest of a record."""

    def __init__(
        self,
        parts: Sequence[KeyPart],
        readers: Sequence[SideReader],
        own: KeyPart | None = None,
        absent: Collection[bytes] = (),
    ) -> None:
        """``own``: rules that normalise the event's id. The first reader returns the id as written."""
        self._normalisers = [None if part.plain or part.each else part.normaliser("key", absent) for part in parts]
        self._listed = next((at for at, part in enumerate(parts) if part.each), None)
        if self._listed is not None:
            self._members = members_of(parts[self._listed], absent)
        self._own = None if own is None or own.plain else own.normaliser("id", absent)
        self._readers = tuple(readers)
        self._first = self._readers[0]

    @property
    def numbers(self) -> dict[str, object]:
        """Returns the fields' numbers and types (protobuf only)."""
        each = [reader.numbers for reader in self._readers]  # type: ignore[attr-defined]
        return {**each[0], "key": [numbers["key"] for numbers in each]}

    def key(self, record: bytes, file: LogFile) -> bytes:
        return self._key_of([reader.key(record, file) for reader in self._readers])

    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        (header,) = self.headers((record,), file).rows()
        if isinstance(header, BadRecord):
            raise header
        return header

    def headers(self, records: Sequence[bytes], file: LogFile) -> Headers:
        found = self._first.headers(records, file)
        keys = self._keys([found.keys, *(reader.keys_of(records, file) for reader in self._readers[1:])])
        others = dict(found.others)
        for row, key in enumerate(keys):
            if key is None and row not in others:
                try:
                    keys[row] = self.key(records[row], file)
                except BadRecord as bad:
                    others[row] = bad
        ids = found.ids if self._own is None else self._ids(found.ids, others)
        return Headers([key or b"" for key in keys], found.times, ids, others)

    def _ids(self, texts: Sequence[bytes | None], others: dict[int, BadRecord]) -> list[bytes | None]:
        """Normalises ids; adds rows whose id does not fit its rules to ``others``."""
        assert self._own is not None
        ids: list[bytes | None] = []
        for row, text in enumerate(texts):
            try:
                ids.append(None if text is None or row in others else self._own(text))
            except BadRecord as bad:
                others[row] = bad
                ids.append(None)
        return ids

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        return self._first.payload(record, file)

    def payloads(self, records: Sequence[bytes], files: Sequence[LogFile]) -> SidePayloads:
        return self._first.payloads(records, files)

    def stops_at(self, record: bytes) -> Stop | None:
        return self._first.stops_at(record)

    def times(self, records: Sequence[bytes], file: LogFile) -> Headers:
        return self._first.times(records, file)

    def keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        return self._keys([reader.keys_of(records, file) for reader in self._readers])

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        return self._keys([reader.keys(block, file) for reader in self._readers])

    def located_keys(self, block: bytes, file: LogFile) -> tuple[list[bytes | None], npt.NDArray[np.int64]] | None:
        first = self._first.located_keys(block, file)
        if first is None:
            return None
        return self._keys([first[0], *(reader.keys(block, file) for reader in self._readers[1:])]), first[1]

    def _keys(self, columns: Sequence[Column]) -> list[bytes | None]:
        """Returns each row's key from the parts' values; ``None`` if one is missing or does not fit its rules."""
        columns = [
            column if normaliser is None else _each(normaliser, column)
            for normaliser, column in zip(self._normalisers, columns, strict=True)
        ]
        if self._listed is not None:
            return [None if None in row else self._list_or_none(row) for row in zip(*columns, strict=True)]
        if len(columns) == 1:
            return list(columns[0])
        if not any(None in column for column in columns):
            keys = list(map(SEPARATOR.join, zip(*columns, strict=True)))
            every = b"".join(keys)
            if every.count(SEPARATOR) == len(keys) * (len(columns) - 1) and ESCAPE not in every:
                return keys  # type: ignore[return-value]  # a list of keys is one of keys or None
        return [None if None in row else _joined(row) for row in zip(*columns, strict=True)]

    def _key_of(self, values: Sequence[bytes]) -> bytes:
        both = zip(self._normalisers, values, strict=True)
        values = [value if normaliser is None else normaliser(value) for normaliser, value in both]
        return _joined(values) if self._listed is None else self._list(values)

    def _list(self, values: Sequence[bytes]) -> bytes:
        at, members = self._listed, self._members
        assert at is not None
        return list_of_keys(_joined([*values[:at], each, *values[at + 1 :]]) for each in members(values[at]))

    def _list_or_none(self, values: Sequence[bytes]) -> bytes | None:
        try:
            return self._list(values)
        except BadRecord:
            return None


def _each(normalised: Normaliser, column: Column) -> list[bytes | None]:
    out: list[bytes | None] = []
    for value in column:
        try:
            out.append(None if value is None else normalised(value))
        except BadRecord:
            out.append(None)
    return out


def _joined(values: Sequence[bytes]) -> bytes:
    return values[0] if len(values) == 1 else joined(values)
