r"""Records parsed by a regular expression with named groups, e.g. access logs.

The pattern is a Python one over bytes (``\d``, ``\w`` are ASCII) and must match from the start of the record; text
after the match is ignored unless the pattern ends with ``$``. The payload is an object of strings with all groups
that took part.

Caution: patterns in which a repetition can be split in many ways, such as ``(\S+\s*)*"``, take time exponential in
a record's length if they do not match. Prefer classes that exclude the next separator: ``"([^"]*)"``, ``[^ ]+``.
"""

from __future__ import annotations

import re
import warnings

import orjson

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.formats.base import FieldsSide, Stop, TimeField, without
from photon.adapters.formats.encodings import UTF16, looks_utf16
from photon.adapters.formats.text_lines import LINE_END
from photon.adapters.times import TimeReader


class RegexSide(FieldsSide[re.Match[bytes]]):
    """Reads one side through ``pattern``; the field names are its groups."""

    def __init__(
        self,
        pattern: re.Pattern[bytes],
        key: str,
        id_field: str | None = None,
        time_field: TimeField = None,
        time: TimeReader | None = None,
        *,
        gathered: bool = False,
        absent: frozenset[bytes] = frozenset(),
    ) -> None:
        """``gathered``: LINE_END replaces each line end inside a record (``formats.text_lines``)."""
        super().__init__(key, id_field, time_field, time, absent=absent)
        self._pattern, self._match = pattern, pattern.match
        self._line_end = LINE_END if gathered else b"\n"

    def stops_at(self, record: bytes) -> Stop | None:
        return None if not record or self._match(record) else longest_fit(self._pattern, record)

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        groups = self._fields(record, file).groupdict()
        try:
            return orjson.dumps(
                {
                    name: text.replace(self._line_end, b"\n").decode()
                    for name, text in groups.items()
                    if text is not None and text not in self._absent
                }
            )
        except UnicodeDecodeError:
            return None

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        match, name = self._match, self._names["key"]
        out: list[bytes | None] = []
        for line in block.split(b"\n")[:-1]:
            found = match(line.removesuffix(b"\r"))
            out.append((found[name] or None) if found else None)
        return without(out, self._absent)

    def _fields(self, record: bytes, file: LogFile) -> re.Match[bytes]:
        match = self._match(record)
        if match is None:
            why = UTF16 if looks_utf16(record) else "does not match the pattern"
            raise BadRecord(why if record else "is empty")
        return match

    def _value(self, fields: re.Match[bytes], role: str) -> bytes:
        name = self._names[role]
        value: bytes | None = fields[name]
        if value and value not in self._absent:
            return value
        raise BadRecord(f"{role} group {name!r} is {'absent' if value else 'empty'}")


def longest_fit(pattern: re.Pattern[bytes], record: bytes) -> Stop:
    """Returns where a record stops matching the pattern, and the rest of the pattern, which does not match there.

    The pattern is cut only where its start is itself a pattern, so never inside a group. If the pattern has
    alternatives, the result is an approximation.
    """
    text = pattern.pattern
    for end in range(len(text) - 1, 0, -1):
        try:
            with warnings.catch_warnings(action="ignore"):  # half a character set may look like something else
                found = re.compile(text[:end], pattern.flags).match(record)
        except re.error:
            continue
        if found:
            return Stop(found.end(), text[end:].decode("utf-8", "backslashreplace"))
    return Stop(0, text.decode("utf-8", "backslashreplace"))
