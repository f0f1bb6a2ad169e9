"""All that an adapter says of sample records, as text that can be compared: over runs, orders and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from photon.adapters.contract import Adapter, BadRecord, Filtered, Joined
from photon.adapters.faults import describe, header_fault, joined_fault, key_fault, payload_fault
from photon.adapters.testkit.samples import Sample, Samples

Answers = dict[str, str]
"""``foreign clicks.log line 3: foreign_header`` -> what came, as ``repr`` shows it."""
Pair = tuple[Sample, Sample]
"""A foreign record and the primary record that it names."""


def place(side: str, sample: Sample) -> str:
    """Names a record for a person."""
    return f"{side} {sample.file.path} line {sample.line}"


def said(adapter: Adapter, ask: Callable[[], object]) -> str:
    """What came, or how it was refused."""
    try:
        return repr(ask())
    except (Exception, SystemExit) as error:  # whatever the adapter raises is its answer
        return f"{type(error).__name__}: {describe(error, adapter)}"


def pairs(adapter: Adapter, samples: Samples) -> list[Pair]:
    """Each foreign record whose primary record is among the samples; the first one of a key counts."""
    first: dict[bytes, Sample] = {}
    for each in samples.primary:
        try:
            first.setdefault(adapter.primary_key(each.record, each.file), each)
        except (Exception, SystemExit):  # another check tells
            continue
    found = []
    for each in samples.foreign:
        try:
            primary = first.get(adapter.foreign_header(each.record, each.file).key)
        except (Exception, SystemExit):
            continue
        if primary is not None:
            found.append((each, primary))
    return found


def answers(adapter: Adapter, samples: Samples, *, backwards: bool = False) -> Answers:
    """The answer of each method for one record. ``backwards``: asked from the last record to the first."""
    asks: list[tuple[str, Callable[[], object]]] = []
    for each in samples.primary:
        here = place("primary", each)
        asks.append((f"{here}: primary_key", partial(adapter.primary_key, each.record, each.file)))
        asks.append((f"{here}: primary_payload", partial(adapter.primary_payload, each.record, each.file)))
    for each in samples.foreign:
        here = place("foreign", each)
        asks.append((f"{here}: foreign_header", partial(adapter.foreign_header, each.record, each.file)))
        asks.append((f"{here}: foreign_payload", partial(adapter.foreign_payload, each.record, each.file)))
    for foreign, primary in pairs(adapter, samples):
        ask = partial(adapter.join, foreign.record, foreign.file, primary.record, primary.file)
        asks.append((f"{place('foreign', foreign)}: join", ask))
    if backwards:
        asks.reverse()
    return {what: said(adapter, ask) for what, ask in asks}


def differing(one: Answers, other: Answers, most: int = 3) -> list[str]:
    """One short line for each of the first answers that differ."""
    found = [
        f"{what} gave {_short(one.get(what, 'nothing'))} and then {_short(other.get(what, 'nothing'))}"
        for what in {**one, **other}
        if one.get(what) != other.get(what)
    ]
    return [*found[:most], f"… and {len(found) - most} more"] if len(found) > most else found


def by_file(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Neighbours of one file and header: what the methods for many records are given at once."""
    return [list(group) for _, group in groupby(samples, key=lambda each: each.file)]


def reading_fault(adapter: Adapter, side: str, sample: Sample) -> str:
    """Why a running join would refuse this record; empty when it would take it."""
    try:
        if side == "primary":
            fault = key_fault(adapter.primary_key(sample.record, sample.file))
            payload = adapter.primary_payload(sample.record, sample.file)
        else:
            fault = header_fault(adapter.foreign_header(sample.record, sample.file))
            payload = adapter.foreign_payload(sample.record, sample.file)
        return fault or payload_fault(payload) or ""
    except BadRecord as bad:
        return f"is rejected: {bad.reason}"
    except (Exception, SystemExit) as error:
        return describe(error, adapter)


def joining_fault(adapter: Adapter, pair: Pair) -> str:
    """Why what ``join`` gives could not be written; empty when it could, or when it filters or rejects the pair."""
    foreign, primary = pair
    try:
        result: object = adapter.join(foreign.record, foreign.file, primary.record, primary.file)
    except BadRecord:
        return ""
    except (Exception, SystemExit) as error:
        return describe(error, adapter)
    return result_fault(result)


def result_fault(result: object) -> str:
    """Of what ``join`` gave."""
    if isinstance(result, Joined):
        return joined_fault(result) or ""
    return "" if isinstance(result, Filtered) else f"join gave a {type(result).__name__}, not Joined or Filtered"


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:159] + "…"
