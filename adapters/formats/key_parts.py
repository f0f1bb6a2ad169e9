"""Keys of several fields, and fields normalised before comparison, built on readers of one field each.

A key of several parts is their text, joined by ``|``; in a part ``~`` is written ``~0`` and ``|`` as ``~1`` (like
JSON Pointer escapes), so no two lists of parts have the same key. A key of one part is that part unchanged. Each part
is read as a key in its own right, by the format's own fast paths; a value that is no key there is none here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.formats.base import SidePayloads, SideReader, Stop

PARTS_MAX = 8
DIGITS_MAX = 400  # digits of a number written out, before and after its point: as many as a double may have
SHOWN_BYTES = 40
_SEPARATOR, _ESCAPE = b"|", b"~"
_NUMBER = re.compile(rb"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")
Column = Sequence[bytes | None]


class KeyPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A field of a key, and the rules by which its values are equal."""

    field: str
    # ``number``: compared by value, so 7, "007" and 7.0 are equal. Absent: compared as written
    kind: Literal["number"] | None = msgspec.field(name="as", default=None)
    case: Literal["fold"] | None = None  # upper and lower case are equal (Unicode's full folding)
    trim: bool = False  # ignores white space around the value

    @property
    def plain(self) -> bool:
        """True if its values are compared as written."""
        return self.kind is None and self.case is None and not self.trim

    def normalised(self, value: bytes) -> bytes:
        """Raises BadRecord for a value that these rules do not fit."""
        if self.trim or self.case is not None:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                raise BadRecord(f"key field {self.field!r} is not UTF-8") from None
            text = text.strip() if self.trim else text
            value = (text.casefold() if self.case is not None else text).encode()
        if self.kind is not None:
            return number(value, self.field)
        if not value:
            raise BadRecord(f"key field {self.field!r} is empty")
        return value


def number(text: bytes, field: str) -> bytes:
    """Returns the canonical spelling of a decimal number: no exponent, no redundant zeros. Raises BadRecord."""
    if text.isdigit() and text[0] != ord("0") and len(text) <= DIGITS_MAX:
        return text
    match = _NUMBER.fullmatch(text)
    whole, fraction = (match[2], match[3] or b"") if match else (b"", b"")
    if match is None or not whole + fraction:
        shown = repr(text[:SHOWN_BYTES].decode("utf-8", "backslashreplace"))
        raise BadRecord(f"key field {field!r} is {shown}, not a number")
    digits = (whole + fraction).lstrip(b"0")
    point = len(digits) - len(fraction) + int(match[4] or 0)
    digits = digits.rstrip(b"0")
    if not digits:
        return b"0"
    if max(point, len(digits) - point, len(digits)) > DIGITS_MAX:
        raise BadRecord(f"key field {field!r} is a number of more than {DIGITS_MAX} digits")
    before, behind = (
        digits[: max(point, 0)].ljust(point, b"0"),
        digits[max(point, 0) :].rjust(len(digits) - point, b"0"),
    )
    sign = b"-" if match[1] == b"-" else b""
    return sign + (before or b"0") + (b"." + behind if behind else b"")


class KeyPartsSide(SideReader):
    """Reads one side through ``readers``, one for each part; the first one also reads the rest of a record."""

    def __init__(self, parts: Sequence[KeyPart], readers: Sequence[SideReader]) -> None:
        self._parts, self._readers = tuple(parts), tuple(readers)
        self._first = self._readers[0]

    @property
    def numbers(self) -> dict[str, object]:
        """For protobuf: the fields' positions, regardless of their names."""
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
        return found._replace(keys=[key or b"" for key in keys], others=others)

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
            column if part.plain else _each(part.normalised, column)
            for part, column in zip(self._parts, columns, strict=True)
        ]
        if len(columns) == 1:
            return list(columns[0])
        if not any(None in column for column in columns):
            keys = list(map(_SEPARATOR.join, zip(*columns, strict=True)))
            every = b"".join(keys)
            if every.count(_SEPARATOR) == len(keys) * (len(columns) - 1) and _ESCAPE not in every:
                return keys  # type: ignore[return-value]  # a list of keys is one of keys or None
        return [None if None in row else _joined(row) for row in zip(*columns, strict=True)]

    def _key_of(self, values: Sequence[bytes]) -> bytes:
        values = [part.normalised(value) for part, value in zip(self._parts, values, strict=True)]
        return values[0] if len(values) == 1 else _joined(values)


def _each(normalised: Callable[[bytes], bytes], column: Column) -> list[bytes | None]:
    out: list[bytes | None] = []
    for value in column:
        try:
            out.append(None if value is None else normalised(value))
        except BadRecord:
            out.append(None)
    return out


def _joined(values: Sequence[bytes]) -> bytes:
    return _SEPARATOR.join(each.replace(b"~", b"~0").replace(b"|", b"~1") for each in values)
