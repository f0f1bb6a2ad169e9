"""Computes some records twice, and stops the reader if the two answers to a record differ.

An id made from random numbers, the process number or ``hash()`` differs between datacentres and after each restart,
so each event would be joined once per value. One record in ``EVERY`` is computed again by the other kind of method
(for one record, for many records). The first records of each run are also computed in another process
(``testkit.first_records``), before any id is sent.
"""

from __future__ import annotations

from photon.adapters.contract import Adapter, AdapterError, BadRecord, LogFile

EVERY = 1000
_COUNTS = "_computed"  # attribute of an adapter: side -> number of records computed so far
TODO = "make it depend on the record's bytes alone, then start again; photon adapter test finds more such faults"


def rows_due(adapter: Adapter, side: str, count: int) -> range:
    """Returns which of the next ``count`` records of a side are computed twice: the first, and one in ``EVERY``."""
    counts = vars(adapter).setdefault(_COUNTS, {})
    before = counts.get(side, 0)
    counts[side] = before + count
    return range(-before % EVERY, count, EVERY)


def compare(adapter: Adapter, file: LogFile, many: str, one: object, other: object) -> None:
    """Compares ``one``, a record's answer from the method ``many``, with ``other``, its answer when asked for alone.

    Raises AdapterError if they differ. Rejections are equal regardless of their reasons.
    """
    first, second = _shown(one), _shown(other)
    if first != second:
        what = f"{many} gave {first} for a record of {file.path}, and {second} when asked for it alone"
        raise AdapterError(what, type(adapter).__name__, TODO)


def _shown(answer: object) -> str:
    return "a rejection" if answer is None or isinstance(answer, BadRecord) else repr(answer)
