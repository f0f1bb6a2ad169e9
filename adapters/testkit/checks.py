"""Checks of the adapter contract, made with sample records. Each returns one line per breach."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import (
    API_SPOKEN,
    API_VERSION,
    Adapter,
    BadRecord,
    Cut,
    ForeignHeader,
    Framing,
    LogFile,
    Pairs,
    Skipped,
)
from photon.adapters.logs.own_framing import cut_checked
from photon.adapters.testkit.answers import (
    answers,
    asked,
    by_file,
    differing,
    joining_fault,
    pairs,
    place,
    reading_fault,
)
from photon.adapters.testkit.bad_lines import bad_line_findings
from photon.adapters.testkit.other_process import NotThere, answers_elsewhere, made_again
from photon.adapters.testkit.samples import Sample, Samples, framing_of

RECORDS = 2000  # each method is timed over at least this many records; the samples are repeated
SLOWEST_PER_S = 1000.0  # the bound, which is generous: Photon's own formats read several hundred thousand a second

# Seconds; the default counts CPU time of this thread, so that a busy machine makes no difference.
Clock = Callable[[], float]
Check = Callable[[Adapter, Samples], list[str]]
FINDINGS_MAX = 20  # findings kept for one check; the rest are counted
LOCAL_TIME = (
    "is a time read in the machine's zone, which differs between datacentres? Say which zone the logs "
    'mean, as in datetime.strptime(…).replace(tzinfo=ZoneInfo("Europe/Berlin"))'
)


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of one method. ``per_s``: records a second on one core."""

    method: str
    per_s: float


def speeds(adapter: Adapter, samples: Samples, clock: Clock = time.thread_time) -> list[Speed]:
    """Measures the methods that a running join calls. Leaves out a side without samples."""
    found: list[Speed] = []
    for group in by_file(samples.primary)[:1]:
        block, file = b"".join(each.record + b"\n" for each in group), group[0].file
        found.append(_timed(adapter, "primary_keys", len(group), partial(adapter.primary_keys, block, file), clock))
    for group in by_file(samples.foreign)[:1]:
        records, file = [each.record for each in group], group[0].file
        headers = partial(adapter.header_columns, records, file)
        found.append(_timed(adapter, "header_columns", len(group), headers, clock))
    together = pairs(adapter, samples)
    if together:

        def join() -> None:
            for foreign, primary in together:
                with suppress(BadRecord):  # a valid answer
                    adapter.join(foreign.record, foreign.file, primary.record, primary.file)

        found.append(_timed(adapter, "join", len(together), join, clock))
    return found


def speed_findings(measured: list[Speed], slowest_per_s: float = SLOWEST_PER_S) -> list[str]:
    return [
        f"{each.method}: {each.per_s:,.0f} records/s, fewer than {slowest_per_s:,.0f}"
        for each in measured
        if each.per_s < slowest_per_s
    ]


def _timed(adapter: Adapter, method: str, records: int, call: Callable[[], object], clock: Clock) -> Speed:
    done, began = 0, clock()
    guard = Guard(adapter)
    while done < RECORDS:
        if isinstance(guard.many(call), Fault):
            return Speed(method, 0.0)
        done += records
    return Speed(method, done / max(clock() - began, 1e-9))


def check_version(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that the adapter is written for this version of the contract."""
    written = adapter.api_version
    return [] if written in API_SPOKEN else [f"api_version is {written!r}; this Photon has {API_VERSION}"]


def check_readable(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that every sample is read: key, id, time, payload and the result of ``join`` follow the contract."""
    found = [
        f"{place(side, each)}: {fault}"
        for side, own in (("primary", samples.primary), ("foreign", samples.foreign))
        for each in own
        if (fault := reading_fault(adapter, side, each))
    ]
    if found:
        return found
    together = pairs(adapter, samples)
    if samples.primary and samples.foreign and not together:
        return ["no foreign sample refers to a primary sample, so nothing can be joined: add matching pairs"]
    return [f"{place('foreign', each[0])}: {fault}" for each in together if (fault := joining_fault(adapter, each))]


def check_deterministic(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that answers are the same when repeated, from a new adapter with the same options, and in reverse
    order."""
    first = answers(adapter, samples)
    if found := differing(first, answers(adapter, samples)):
        return [f"asked twice: {each}" for each in found]
    fresh = made_again(type(adapter), copy.deepcopy(adapter.options), adapter.shape, adapter.within)
    if adapter.rule() != fresh.rule():
        return ["rule() differs between two adapters with the same options"]
    if found := differing(first, answers(fresh, samples, backwards=True)):
        return [f"from another adapter, in reverse order: {each}" for each in found]
    return []


def check_elsewhere(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that answers are the same in another process with another hash seed, time zone, language and working
    directory."""
    try:
        there = answers_elsewhere(adapter, samples)
    except NotThere as error:
        return [f"another process: {error}"]
    found = [f"here and in another process: {each}" for each in differing(answers(adapter, samples), there)]
    return [*found, LOCAL_TIME] if any("event_time_ns gave" in each for each in found) else found


def check_untouched(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that the adapter changes neither its options nor the lists that are passed to it."""
    before = repr(adapter.options)
    found = []
    forms = [
        ("header_columns", samples.foreign, adapter.header_columns),
        ("primary_keys_of", samples.primary, adapter.primary_keys_of),
        ("primary_times", samples.primary, adapter.primary_times),
    ]
    for name, side, form in forms:
        for group in by_file(side):
            if _is_changed(adapter, partial(form, file=group[0].file), [each.record for each in group]):
                found.append(f"{name} changes the list of records that is passed to it")
                break
    together = list(zip(*((*_placed(one), *_placed(other)) for one, other in pairs(adapter, samples)), strict=True))
    if together and _is_changed(adapter, lambda *columns: adapter.join_columns(Pairs(*columns)), *together):
        found.append("join_columns changes the lists that are passed to it")
    answers(adapter, samples)
    if repr(adapter.options) != before:
        found.append("its options have changed while it read records")
    return found


def _placed(sample: Sample) -> tuple[bytes, LogFile]:
    return sample.record, sample.file


def _is_changed(adapter: Adapter, form: Callable[..., object], *columns: Sequence[object]) -> bool:
    """True if a method for many records changes its arguments, whether it answers or not."""
    handed = [list(column) for column in columns]
    Guard(adapter).many(lambda: form(*handed))
    return handed != [list(column) for column in columns]


def check_batches(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that the methods for many records return the same as those for one record."""
    found: list[str] = []
    for group in by_file(samples.primary):
        file, block = group[0].file, b"".join(each.record + b"\n" for each in group)
        singles = [asked(adapter, partial(adapter.primary_key, each.record, each.file)) for each in group]
        found += _compared(adapter, "primary_keys", group, singles, partial(adapter.primary_keys, block, file))
        each_of = partial(adapter.primary_keys_of, [each.record for each in group], file)
        found += _compared(adapter, "primary_keys_of", group, singles, each_of)
    for group in by_file(samples.foreign):
        file, records = group[0].file, [each.record for each in group]
        singles = [asked(adapter, partial(adapter.foreign_header, each.record, each.file)) for each in group]
        in_columns = partial(_header_rows, adapter, records, file)
        found += _compared(adapter, "header_columns", group, singles, in_columns)
    return found + _join_columns_findings(adapter, samples)


def check_bad_lines(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that garbage, truncated lines, NUL bytes, invalid UTF-8, empty and overlong records are rejected or
    read."""
    return bad_line_findings(adapter, samples)


def check_framing(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that the adapter's own framing cuts the start of a file into the same records, however the bytes are
    divided among calls."""
    found = []
    for side, path, data in samples.begins:
        framing, _ = framing_of(adapter, side)
        if fault := _cutting_fault(framing, data):
            found.append(f"{path}: {fault}")
    return found


def _cutting_fault(framing: Framing, data: bytes) -> str:
    """Compares the results of cutting ``data`` at once, in two parts at every position, and byte by byte."""
    whole = _cut_in(framing, [data])
    if isinstance(whole, str):
        return whole
    for at in range(1, len(data)):
        parts = _cut_in(framing, [data[:at], data[at:]])
        if parts != whole:
            return _differs(f"cut at byte {at}", whole, parts)
    single = _cut_in(framing, [data[at : at + 1] for at in range(len(data))])
    return "" if single == whole else _differs("byte by byte", whole, single)


def _cut_in(framing: Framing, parts: Sequence[bytes]) -> Cut | str:
    """Returns the result of passing the parts in turn; a line that says why if the framing fails."""
    text, state, rest, used = b"", b"", b"", 0
    for part in parts:
        rest += part
        made = cut_checked(framing, rest, state)
        if isinstance(made, str):
            return made
        text, state, rest, used = text + made.text, made.state, rest[made.used :], used + made.used
    return Cut(text, used, state)


def _differs(how: str, whole: Cut, parts: Cut | str) -> str:
    if isinstance(parts, str):
        return f"{how}, {parts}"
    if parts.text == whole.text:
        return f"{how}, the text is the same, but the bytes used ({parts.used}, not {whole.used}) or the state differ"
    first, second = (each.text.split(b"\n") for each in (whole, parts))
    at = next(row for row, pair in enumerate(zip_longest(first, second)) if pair[0] != pair[1])
    one, other = (repr(rows[at][:80]) if at < len(rows) else "nothing" for rows in (first, second))
    return f"{how}, record {at + 1} is {other}; at once it is {one}"


def check_speed(adapter: Adapter, samples: Samples) -> list[str]:
    """Checks that each method handles at least a thousand records a second on one core."""
    return speed_findings(speeds(adapter, samples), SLOWEST_PER_S)


# All but the speed, which ``examine`` measures once.
CHECKS: dict[str, Check] = {
    "version": check_version,
    "readable": check_readable,
    "deterministic": check_deterministic,
    "elsewhere": check_elsewhere,
    "untouched": check_untouched,
    "batches": check_batches,
    "bad lines": check_bad_lines,
    "framing": check_framing,
}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of all checks. ``findings``: check -> one line for each breach; empty if the contract is kept."""

    findings: dict[str, list[str]]
    speeds: list[Speed]

    @property
    def kept(self) -> bool:
        return not any(self.findings.values())

    def __str__(self) -> str:
        lines = [f"{check}: {each}" for check, found in self.findings.items() for each in found]
        return "\n".join(lines) or "the contract is kept"


def examine(adapter: Adapter, samples: Samples, *, without: Sequence[str] = ()) -> Report:
    """Runs every check except those named in ``without``."""
    findings = {name: bounded(check(adapter, samples)) for name, check in CHECKS.items() if name not in without}
    measured = speeds(adapter, samples) if "speed" not in without and not findings.get("bad lines") else []
    if "speed" not in without:
        findings["speed"] = speed_findings(measured)
    return Report(findings, measured)


def check_adapter(adapter: Adapter, samples: Samples) -> Report:
    """Runs ``examine`` in a test: raises AssertionError with one line for each breach."""
    report = examine(adapter, samples)
    if not report.kept:
        raise AssertionError(str(report))
    return report


def bounded(found: list[str]) -> list[str]:
    """Returns the first findings of a check, and how many more there are."""
    if len(found) <= FINDINGS_MAX:
        return found
    return [*found[:FINDINGS_MAX], f"… and {len(found) - FINDINGS_MAX} more"]


def _header_rows(adapter: Adapter, records: list[bytes], file: LogFile) -> list[ForeignHeader | BadRecord]:
    return adapter.header_columns(records, file).rows()


def _join_columns_findings(adapter: Adapter, samples: Samples) -> list[str]:
    together = pairs(adapter, samples)
    if not together:
        return []
    rows = [(foreign.record, foreign.file, primary.record, primary.file) for foreign, primary in together]
    singles = [asked(adapter, partial(adapter.join, *each)) for each in rows]
    columns = Pairs(*(list(column) for column in zip(*rows, strict=True)))
    handed = Pairs(*(list(column) for column in columns))  # type: ignore[arg-type]
    own = [foreign for foreign, _ in together]
    found = _compared(adapter, "join_columns", own, singles, lambda: adapter.join_columns(handed).rows())
    return [*found, "join_columns changes the columns that are passed to it"] if handed != columns else found


def _compared(
    adapter: Adapter, method: str, group: Sequence[Sample], singles: Sequence[object], ask: Callable[[], Any]
) -> list[str]:
    many = asked(adapter, ask)
    if isinstance(many, Fault | BadRecord):
        return [f"{method}: {many.reason}"]
    if not isinstance(many, list | tuple) or len(many) != len(group):
        given = len(many) if isinstance(many, list | tuple) else f"a {type(many).__name__}"
        return [f"{method} gave {given} answers for {len(group)} records"]
    one = {place(method, each): said_as(value) for each, value in zip(group, singles, strict=True)}
    other = {place(method, each): said_as(value) for each, value in zip(group, many, strict=True)}
    return [f"one record alone and with others: {each}" for each in differing(one, other)]


def said_as(value: object) -> str:
    """Returns an answer as text; rejections are equal regardless of their reasons."""
    if isinstance(value, Skipped) or value == b"":
        return "skipped"
    return "rejected" if value is None or isinstance(value, BadRecord) else repr(value)
