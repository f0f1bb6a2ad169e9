r"""logfmt: ``level=info msg="it \"works\"" retries=3 done``, one record a line.

Fields are separated by spaces or tabs. A name has no space, ``=`` or ``"``. A value is bare (up to the next space, no
quote in it) or quoted, with JSON's escapes inside. A name without ``=`` is a flag: ``true`` in the payload, never a
key, id or time; ``name=`` is the empty string, which is no key or id. If a name is repeated, the last value counts,
and any value is preferred to a flag. Values in the payload are strings: logfmt has no types. A record that is not
UTF-8 is read too; its payload is written as base64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import orjson

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.formats.base import FieldsSide, without
from photon.adapters.formats.cut_lines import CHUNK_BYTES, I64, Mask, cut_lines

_SPACE, _TAB, _QUOTE, _NEWLINE, _RETURN = b' \t"\n\r'
_NAME = re.compile(rb'[^\s="\\]+')
_FIELD = re.compile(rb'([^\s="]++)(?:=(?:"([^"\\]*+(?:(?>\\.[^"\\]*+))*+)"|([^\s"]*+)))?(?:[ \t]++|\Z)')
_ESCAPE = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SURROGATES = re.compile(rb"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_SHORT = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class PairScan:
    """Finds a name's values in a block of logfmt without parsing it: proofs over its bytes, as in ``json_scan``.

    A line's key is taken straight from its bytes when all of this holds:

    1. ``name=`` occurs exactly once at the start of the line or after a space or tab;
    2. no quotation mark precedes it in the line, or an even number in a block without backslashes;
    3. a value of at least one byte follows, up to the next space, tab or line end, with no quotation mark in it.

    For a valid logfmt line the answer is exactly the parser's. For any other line (such as one with an open
    quotation mark) it may be a candidate where the parser says ``None``, as in ``json_scan``. All other lines go to
    the parser.
    """

    needle: bytes  # name=

    @classmethod
    def for_name(cls, name: bytes) -> PairScan | None:
        """Returns the scan for a name; ``None`` if logfmt cannot hold the name."""
        return cls(name + b"=") if _NAME.fullmatch(name) else None

    def keys(self, block: bytes, parse: Callable[[bytes], bytes | None]) -> list[bytes | None]:
        """Returns one key for each line of the block; ``parse`` handles lines that are not plain."""
        out: list[bytes | None] = []
        at = 0
        while at < len(block):
            end = block.find(b"\n", min(at + CHUNK_BYTES, len(block)) - 1) + 1 or len(block)
            out += self._chunk_keys(block[at:end] if end - at < len(block) else block, parse)
            at = end
        return out

    def _chunk_keys(self, block: bytes, parse: Callable[[bytes], bytes | None]) -> list[bytes | None]:
        array, starts, ends = cut_lines(block)
        count = len(ends)
        rows, value, end = self._plain(block, array, starts, ends)
        texts = [block[a:b] for a, b in zip(value.tolist(), end.tolist(), strict=True)]
        if len(rows) == count:
            return texts  # type: ignore[return-value]  # a list of keys is one of keys or None
        out: list[bytes | None] = [None] * count
        odd = np.ones(count, np.bool_)
        odd[rows] = False
        for row, key in zip(rows.tolist(), texts, strict=True):
            out[row] = key
        rest = np.flatnonzero(odd)
        for row, a, b in zip(rest.tolist(), starts[rest].tolist(), ends[rest].tolist(), strict=True):
            out[row] = parse(block[a:b].removesuffix(b"\r"))
        return out

    def _plain(self, block: bytes, array: np.ndarray, starts: I64, ends: I64) -> tuple[I64, I64, I64]:
        """Returns the rows whose key was proved, ascending, and the positions of their values."""
        pieces = block.split(self.needle)
        size = len(self.needle)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        at = np.cumsum(lengths[:-1] + size) - size
        rows = np.searchsorted(ends, at)
        before = array[np.maximum(at - 1, 0)]
        begins = (at == starts[np.minimum(rows, len(starts) - 1)]) | (before == _SPACE) | (before == _TAB)
        at, rows = at[begins], rows[begins]
        good: Mask = np.bincount(rows, minlength=len(ends) + 1)[rows] == 1
        quotes = np.flatnonzero(array == _QUOTE)
        if len(quotes):
            seen = np.searchsorted(quotes, at) - np.searchsorted(quotes, starts[rows])
            good &= (seen == 0) if b"\\" in block else (seen % 2 == 0)
        value = at + size
        stops = np.flatnonzero((array == _SPACE) | (array == _TAB) | (array == _NEWLINE))
        end = stops[np.searchsorted(stops, value)]
        end = end - ((array[end] == _NEWLINE) & (array[end - 1] == _RETURN) & (end > value))
        good &= end > value
        if len(quotes):
            good &= np.searchsorted(quotes, value) == np.searchsorted(quotes, end)
        return rows[good], value[good], end[good]


Pairs = dict[bytes, bytes | None]  # names and values in order of first appearance; ``None`` for a flag


class LogfmtSide(FieldsSide[Pairs]):
    @cached_property
    def _scan(self) -> PairScan | None:
        return PairScan.for_name(self._names["key"].encode())

    def _fields(self, record: bytes, file: LogFile) -> Pairs:
        return parse_pairs(record)

    def _value(self, fields: Pairs, role: str) -> bytes:
        name = self._names[role]
        value = fields.get(name.encode())
        if value and value not in self._absent:
            return value
        what = "has no value" if value is None else "is absent" if value else "is empty"
        raise BadRecord(f"{role} field {name!r} {what if name.encode() in fields else 'is missing'}")

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        fields = parse_pairs(record)
        try:
            return orjson.dumps(
                {
                    name.decode(): True if value is None else value.decode()
                    for name, value in fields.items()
                    if value is None or value not in self._absent
                }
            )
        except UnicodeDecodeError:
            return None

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        """Returns each line's key. A line that is not logfmt may get a candidate key: see ``PairScan``."""
        if self._scan is None:
            return super().keys(block, file)
        return without(self._scan.keys(block, lambda record: self._key_or_none(record, file)), self._absent)


def parse_pairs(record: bytes) -> Pairs:
    """Parses a record. Raises BadRecord."""
    fields: Pairs = {}
    at = len(record) - len(record.lstrip(b" \t"))
    size = len(record)
    if at == size:
        raise BadRecord("is empty")
    match_field = _FIELD.match
    while at < size:
        match = match_field(record, at)
        if match is None:
            raise BadRecord(f"is not logfmt at byte {at}: {_shown(record[at:])}")
        name, quoted, bare = match.groups()
        if bare is not None:
            fields[name] = bare
        elif quoted is not None:
            fields[name] = quoted if b"\\" not in quoted else _unescaped(quoted, at)
        else:
            fields.setdefault(name, None)
        at = match.end()
    return fields


def _unescaped(text: bytes, at: int) -> bytes:
    parts: list[bytes] = []
    done = 0
    while (found := text.find(b"\\", done)) >= 0:
        parts.append(text[done:found])
        pair = _SURROGATES.match(text, found)
        match = pair or _ESCAPE.match(text, found)
        if match is None:
            raise BadRecord(f"has an escape that is not JSON in the value at byte {at}: {_shown(text[found:])}")
        if pair is not None:
            high, low = int(pair[1], 16), int(pair[2], 16)
            parts.append(chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)).encode())
        elif match[1] is not None:
            parts.append(chr(int(match[1], 16)).encode("utf-8", "surrogatepass"))
        else:
            parts.append(_SHORT.get(match[2], match[2]))
        done = match.end()
    return b"".join(parts) + text[done:]


def _shown(text: bytes) -> str:
    return repr(text[:SHOWN_BYTES].decode("utf-8", "backslashreplace")) + ("…" if len(text) > SHOWN_BYTES else "")
