"""Which lines of a block have their quotes plainly in order: a proof over the whole block's bytes at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from photon.adapters.formats.json_scan import I64, Mask


def in_order(array: npt.NDArray[np.uint8], starts: I64, ends: I64, quotes: I64, delimiter: int) -> Mask:
    """For each line (from ``starts`` to its newline at ``ends``): quotes come in pairs, opening and closing a field.

    Such a line holds no line end inside quotes, no doubled quote, and no quote that is an ordinary character. False
    is no verdict. ``quotes``: where the quotes stand; those behind the last newline do not count.
    """
    rows = np.searchsorted(ends, quotes)
    quotes, rows = quotes[rows < len(ends)], rows[rows < len(ends)]
    counts = np.bincount(rows, minlength=len(ends))
    nth = np.arange(len(quotes)) - (np.cumsum(counts) - counts)[rows]
    before, after = array[np.maximum(quotes - 1, 0)], array[quotes + 1]
    opens = (quotes == starts[rows]) | (before == delimiter)
    returns = (after == ord("\r")) & (quotes + 2 == ends[rows])
    closes = (quotes + 1 == ends[rows]) | (after == delimiter) | returns
    good: Mask = counts % 2 == 0
    good[rows[np.where(nth % 2 == 0, ~opens, ~closes)]] = False
    return good
