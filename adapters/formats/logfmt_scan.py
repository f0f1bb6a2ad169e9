"""Keys of a block of logfmt without parsing it: proofs over the block's bytes, as ``json_scan`` has them for JSON.

A line's key is taken straight from its bytes when all of this holds:

1. ``name=`` stands in it exactly once where it begins the line or follows a space or tab;
2. no quotation mark precedes it in the line, or an even number in a block without backslashes;
3. a value of at least one byte follows, up to the next space, tab or line end, with no quotation mark in it.

In a line that is logfmt the answer is exactly the parser's. Of a line that is none (an open quotation mark further
on, say) it may be a candidate where the parser says None, as in ``json_scan``. All other lines go to the parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from photon.adapters.formats.json_scan import CHUNK_BYTES, I64, Mask, cut_lines

_SPACE, _TAB, _QUOTE, _NEWLINE, _RETURN = b' \t"\n\r'
_NAME = re.compile(rb'[^\s="\\]+')


@dataclass(frozen=True, slots=True)
class PairScan:
    """The scan for one name."""

    needle: bytes  # name=

    @classmethod
    def for_name(cls, name: bytes) -> PairScan | None:
        """None when no logfmt can hold the name."""
        return cls(name + b"=") if _NAME.fullmatch(name) else None

    def keys(self, block: bytes, parse: Callable[[bytes], bytes | None]) -> list[bytes | None]:
        """One key for each line of the block; ``parse`` answers for a line (without its end) that is not plain."""
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
        """Rows whose key was proven, ascending, and where their values stand."""
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
