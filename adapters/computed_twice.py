"""Computes some records a second time: an answer that is not a function of the record's bytes stops its reader.

An id made of random numbers, of the process's number or of ``hash()`` is another one in each datacentre and after
each restart, so each event would be joined once for each of them. One record in ``EVERY`` is asked for in the other
form (one record, many records), and the first ones of each run also in another process (``testkit.first_records``),
before any id is sent.
"""

from __future__ import annotations

from photon.adapters.contract import Adapter, AdapterError, BadRecord, LogFile

EVERY = 1000
_COUNTS = "_computed"  # attribute of an adapter: side -> records that it was asked for
TODO = "let it depend on nothing but the record's bytes, then begin again; photon adapter test finds more"


def rows_due(adapter: Adapter, side: str, count: int) -> range:
    """Which of the next ``count`` records of a side are computed twice: one in ``EVERY``, and the first."""
    counts = vars(adapter).setdefault(_COUNTS, {})
    before = counts.get(side, 0)
    counts[side] = before + count
    return range(-before % EVERY, count, EVERY)


def compare(adapter: Adapter, file: LogFile, many: str, one: object, other: object) -> None:
    """``one``: what the form ``many`` gave for a record; ``other``: what the form for one record gave.

    Raises AdapterError where they differ. A rejection counts as one regardless of its reason.
    """
    first, second = _shown(one), _shown(other)
    if first != second:
        what = f"{many} gave {first} for a record of {file.path}, and {second} when asked for it alone"
        raise AdapterError(what, type(adapter).__name__, TODO)


def _shown(answer: object) -> str:
    return "a rejection" if answer is None or isinstance(answer, BadRecord) else repr(answer)
