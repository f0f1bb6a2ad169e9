"""An adapter's answers for sample records, as text that can be compared between runs, orders and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord, Filtered, ForeignHeader, Joined, LogFile, Skipped, Unpaired
from photon.adapters.faults import header_fault, joined_fault, key_fault, payload_fault
from photon.adapters.testkit.samples import Sample, Samples

Answers = dict[str, str]  # ``foreign clicks.log line 3: foreign_header`` -> the answer as ``repr`` shows it
Pair = tuple[Sample, Sample]  # a foreign record and the primary record it names


class Method(NamedTuple):
    name: str
    ask: Callable[[bytes, LogFile], object]
    fault: Callable[[object], str | None]  # why an answer is invalid; empty or ``None`` if it is valid


def place(side: str, sample: Sample) -> str:
    return f"{side} {sample.file.path} line {sample.line}"


def asked(adapter: Adapter, ask: Callable[[], object]) -> object:
    """Returns the answer of ``ask``, the BadRecord that it raised, or a Fault for any other exception."""

    def answer() -> object:
        try:
            return ask()
        except BadRecord as bad:
            return bad

    return Guard(adapter).many(answer)


def methods(adapter: Adapter, side: str) -> tuple[Method, ...]:
    """Returns the methods that read a ``primary`` or ``foreign`` record: its key or header, then its payload."""
    if side == "primary":
        return (
            Method("primary_key", adapter.primary_key, key_fault),
            Method("primary_payload", adapter.primary_payload, payload_fault),
        )
    return (
        Method("foreign_header", adapter.foreign_header, header_fault),
        Method("foreign_payload", adapter.foreign_payload, payload_fault),
    )


def pairs(adapter: Adapter, samples: Samples) -> list[Pair]:
    """Pairs each foreign record with the first primary record that has its key, if the samples hold one."""
    first: dict[bytes, Sample] = {}
    for each in samples.primary:
        key = asked(adapter, partial(adapter.primary_key, each.record, each.file))
        if isinstance(key, bytes):  # another check reports the others
            first.setdefault(key, each)
    found = []
    for each in samples.foreign:
        header = asked(adapter, partial(adapter.foreign_header, each.record, each.file))
        primary = first.get(header.key) if isinstance(header, ForeignHeader) else None
        if primary is not None:
            found.append((each, primary))
    return found


def answers(adapter: Adapter, samples: Samples, *, backwards: bool = False) -> Answers:
    """Returns the answers of all methods for one record. ``backwards`` begins with the last record."""
    asks: list[tuple[str, Callable[[], object]]] = []
    for side, own in (("primary", samples.primary), ("foreign", samples.foreign)):
        known = [(method.name, method.ask) for method in methods(adapter, side)]
        if side == "foreign" and adapter.defines("unmatched_payload"):
            known.append(("unmatched_payload", adapter.unmatched_payload))
        for each in own:
            asks += [
                (f"{place(side, each)}: {name}", partial(method, each.record, each.file)) for name, method in known
            ]
    for foreign, primary in pairs(adapter, samples):
        ask = partial(adapter.join, foreign.record, foreign.file, primary.record, primary.file)
        asks.append((f"{place('foreign', foreign)}: join", ask))
    if backwards:
        asks.reverse()
    found: Answers = {}
    for what, question in asks:
        given = asked(adapter, question)
        if isinstance(given, ForeignHeader):  # report only the part that differs
            found |= {f"{what}.{name}": repr(value) for name, value in given._asdict().items()}
        else:
            found[what] = given.reason if isinstance(given, Fault) else repr(given)
    return found


def differing(one: Answers, other: Answers, most: int = 3) -> list[str]:
    """Returns one short line for each of the first ``most`` answers that differ."""
    found = [
        f"{what} gave {_short(one.get(what, 'nothing'))} and then {_short(other.get(what, 'nothing'))}"
        for what in {**one, **other}
        if one.get(what) != other.get(what)
    ]
    return [*found[:most], f"… and {len(found) - most} more"] if len(found) > most else found


def by_file(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Groups consecutive samples of one file and header. Methods for many records get one group per call."""
    return [list(group) for _, group in groupby(samples, key=lambda each: each.file)]


def reading_fault(adapter: Adapter, side: str, sample: Sample) -> str:
    """Returns why a running join would refuse this record; empty if it would accept it."""
    for method in methods(adapter, side):
        found = asked(adapter, partial(method.ask, sample.record, sample.file))
        if isinstance(found, Skipped):
            return f"is skipped, so it is not an event: {found.reason}"
        if isinstance(found, BadRecord):
            return f"is rejected: {found.reason}"
        fault = found.reason if isinstance(found, Fault) else method.fault(found)
        if fault:
            return fault
    return ""


def joining_fault(adapter: Adapter, pair: Pair) -> str:
    """Returns why a running join could not write the result of ``join``; empty also for an unjoined pair."""
    foreign, primary = pair
    result = asked(adapter, partial(adapter.join, foreign.record, foreign.file, primary.record, primary.file))
    if isinstance(result, Fault):
        return result.reason
    return "" if isinstance(result, BadRecord) else result_fault(result)


def result_fault(result: object) -> str:
    """Describes an invalid result of ``join``; empty if it is valid."""
    if isinstance(result, Joined):
        return joined_fault(result) or ""
    if isinstance(result, Filtered | Unpaired):
        return ""
    return f"join gave a {type(result).__name__}, not Joined, Filtered or Unpaired"


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:159] + "…"
