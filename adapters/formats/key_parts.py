"""Keys of several fields, and keys and ids that are a part of a field or normalised, built on readers of one field.

A key of several parts is their text, joined by ``|``; in a part ``~`` is written ``~0`` and ``|`` as ``~1`` (like
JSON Pointer escapes), so no two lists of parts have the same key. A key of one part is that part unchanged. Each part
is read as a key in its own right, by the format's own fast paths; a value that is no key there is none here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec
import numpy as np
import numpy.typing as npt

from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.formats.base import SidePayloads, SideReader, Stop
from photon.adapters.formats.json_lines import name_bytes, parse_object

PARTS_MAX = 8
DIGITS_MAX = 400  # digits of a number written out, before and after its point: as many as a double may have
SHOWN_BYTES = 40
_SEPARATOR, _ESCAPE = b"|", b"~"
_NUMBER = re.compile(rb"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")
_UUID = re.compile(
    rb"(?:urn:uuid:)?[{(]?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})[)}]?",
    re.IGNORECASE,
)
HEADERS = {
    "traceparent": re.compile(rb"^[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}"),  # its trace id
    "x-amzn-trace-id": re.compile(rb"(?:^|[;\s\"])Root=([^;\s\"]+)"),
}
Column = Sequence[bytes | None]
Normaliser = Callable[[bytes], bytes]


class KeyPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A field of a key, or of an id, and the rules by which its values are equal. They apply in this order."""

    field: str
    pattern: str | None = None  # the value is the first group, or the whole match, of this where it is found
    part: str | None = None  # or it is this part, see ``named_part``
    trim: bool = False  # ignores white space around the value
    case: Literal["fold"] | None = None  # upper and lower case are equal (Unicode's full folding)
    # ``number``: compared by value, so 7, "007" and 7.0 are equal; ``uuid``: by its digits. Absent: as written
    kind: Literal["number", "uuid"] | None = msgspec.field(name="as", default=None)

    @property
    def plain(self) -> bool:
        """True if its values are compared as written."""
        return self == KeyPart(field=self.field)

    def normaliser(self, role: str = "key", absent: Collection[bytes] = ()) -> Normaliser:
        """Returns the function that makes a key (or id) of a field's text.

        It raises BadRecord for a text that these rules do not fit, or of which a mark of an absent value is left.
        """
        field, steps = f"{role} field {self.field!r}", list[Normaliser]()
        if self.pattern is not None:
            steps.append(partial(_found, re.compile(self.pattern.encode()), field))
        if self.part is not None:
            steps.append(partial(named_part(self.part), field))
        if self.trim or self.case is not None:
            steps.append(partial(_written, field, self.trim, self.case is not None))
        if self.kind is not None:
            steps.append(partial(number if self.kind == "number" else uuid, field))

        def normalised(text: bytes) -> bytes:
            for step in steps:
                text = step(text)
            if text and text not in absent:
                return text
            raise BadRecord(f"{field} is {'absent' if text else 'empty'}")

        return normalised


def named_part(name: str) -> Callable[[str, bytes], bytes]:
    """Returns the function from a field and its text to the part of this name. Raises ValueError for no such name.

    ``?NAME``: a member of a URL's query; ``.PATH``: a member of JSON; or one of ``HEADERS``.
    """
    if name in HEADERS:
        return partial(_found, HEADERS[name])
    if len(name) > 1 and name[0] == "?":
        return partial(_query_member, re.compile(rb"(?:^|[?&])%b=([^&\s\"]*)" % re.escape(name[1:].encode())))
    if len(name) > 1 and name[0] == ".":
        return partial(_json_member, name[1:])
    raise ValueError(f"write ?NAME (of a URL's query), .PATH (of JSON), {' or '.join(HEADERS)}")


def _found(pattern: re.Pattern[bytes], field: str, text: bytes) -> bytes:
    match = pattern.search(text)
    found = None if match is None else match[1] if pattern.groups else match[0]
    if found is None:
        raise BadRecord(f"{field} is {_shown(text)}, in which the part that is named is not found")
    return found


def _query_member(pattern: re.Pattern[bytes], field: str, text: bytes) -> bytes:
    found = _found(pattern, field, text.partition(b"#")[0])
    return unquote_to_bytes(found.replace(b"+", b" ")) if b"%" in found or b"+" in found else found


def _json_member(path: str, field: str, text: bytes) -> bytes:
    try:
        return name_bytes(parse_object(text), path, "key", text)
    except BadRecord as bad:
        raise BadRecord(f"{field}, as JSON: {bad.reason}") from None


def _written(field: str, trim: bool, fold: bool, value: bytes) -> bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise BadRecord(f"{field} is not UTF-8") from None
    text = text.strip() if trim else text
    return (text.casefold() if fold else text).encode()


def uuid(field: str, text: bytes) -> bytes:
    """Returns a UUID in lower case, with hyphens; it may be written without, in braces or as a URN."""
    match = _UUID.fullmatch(text)
    if match is None:
        raise BadRecord(f"{field} is {_shown(text)}, not a UUID")
    return b"-".join(match.groups()).lower()


def _shown(text: bytes) -> str:
    return repr(text[:SHOWN_BYTES].decode("utf-8", "backslashreplace"))


def number(field: str, text: bytes) -> bytes:
    """Returns the canonical spelling of a decimal number: no exponent, no redundant zeros. Raises BadRecord."""
    if text.isdigit() and text[0] != ord("0") and len(text) <= DIGITS_MAX:
        return text
    match = _NUMBER.fullmatch(text)
    whole, fraction = (match[2], match[3] or b"") if match else (b"", b"")
    if match is None or not whole + fraction:
        raise BadRecord(f"{field} is {_shown(text)}, not a number")
    digits = (whole + fraction).lstrip(b"0")
    point = len(digits) - len(fraction) + int(match[4] or 0)
    digits = digits.rstrip(b"0")
    if not digits:
        return b"0"
    if max(point, len(digits) - point, len(digits)) > DIGITS_MAX:
        raise BadRecord(f"{field} is a number of more than {DIGITS_MAX} digits")
    before, behind = (
        digits[: max(point, 0)].ljust(point, b"0"),
        digits[max(point, 0) :].rjust(len(digits) - point, b"0"),
    )
    sign = b"-" if match[1] == b"-" else b""
    return sign + (before or b"0") + (b"." + behind if behind else b"")


class KeyPartsSide(SideReader):
    """Reads one side through ``readers``, one for each part; the first one also reads the rest of a record."""

    def __init__(
        self,
        parts: Sequence[KeyPart],
        readers: Sequence[SideReader],
        own: KeyPart | None = None,
        absent: Collection[bytes] = (),
    ) -> None:
        """``own``: rules of the event's id, which the first reader reads as written."""
        self._normalisers = [None if part.plain else part.normaliser("key", absent) for part in parts]
        self._own = None if own is None or own.plain else own.normaliser("id", absent)
        self._readers = tuple(readers)
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
        ids = found.ids if self._own is None else self._ids(found.ids, others)
        return Headers([key or b"" for key in keys], found.times, ids, others)

    def _ids(self, texts: Sequence[bytes | None], others: dict[int, BadRecord]) -> list[bytes | None]:
        """Adds the rows whose id does not fit its rules to ``others``."""
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
        if len(columns) == 1:
            return list(columns[0])
        if not any(None in column for column in columns):
            keys = list(map(_SEPARATOR.join, zip(*columns, strict=True)))
            every = b"".join(keys)
            if every.count(_SEPARATOR) == len(keys) * (len(columns) - 1) and _ESCAPE not in every:
                return keys  # type: ignore[return-value]  # a list of keys is one of keys or None
        return [None if None in row else _joined(row) for row in zip(*columns, strict=True)]

    def _key_of(self, values: Sequence[bytes]) -> bytes:
        both = zip(self._normalisers, values, strict=True)
        values = [value if normaliser is None else normaliser(value) for normaliser, value in both]
        return values[0] if len(values) == 1 else _joined(values)


def _each(normalised: Normaliser, column: Column) -> list[bytes | None]:
    out: list[bytes | None] = []
    for value in column:
        try:
            out.append(None if value is None else normalised(value))
        except BadRecord:
            out.append(None)
    return out


def _joined(values: Sequence[bytes]) -> bytes:
    return _SEPARATOR.join(each.replace(b"~", b"~0").replace(b"|", b"~1") for each in values)
