"""Tries lines such as those of broken logs: an adapter must read or reject each, and do nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, LogFile
from photon.adapters.testkit.answers import asked, methods
from photon.adapters.testkit.samples import Sample, Samples

# More than ``limits.record``: no running join passes such a record, yet it must not kill the process.
LONG_BYTES = 2 << 20
NESTED = 100_000
SAMPLES_CUT = 3  # how many records of each side are truncated and corrupted
SHOWN_BYTES = 60
# Not a record of any text format: an adapter that finds an event time there has invented it.
RUBBISH: tuple[bytes, ...] = (b"\x00" * 16, b"\xff\xfe\xfd\x80", b"\x1f\x8b\x08\x00")
# Numbers other than line numbers: faults that differ only in them are one finding.
_ALIKE = re.compile(r"0x[0-9a-f]+|(?<![:\w])[0-9]+")
_ODD: tuple[bytes, ...] = (
    b" ", b"\t", b"{", b"}", b"[]", b"null", b'"', b",", b"=", b"#", b"|||||||||", b"-1", b"NaN", b"{}" * 3,
)  # fmt: skip


def bad_records(samples: Sequence[Sample]) -> list[bytes]:
    """Returns bad records: garbage, truncated, with NUL bytes, of invalid UTF-8, empty and overlong ones."""
    found = [b"", *RUBBISH, *_ODD, b"a" * LONG_BYTES, b"[" * NESTED, b'{"a":' * NESTED]
    for sample in samples[:SAMPLES_CUT]:
        record = sample.record
        middle = len(record) // 2
        found += [record[: len(record) * part // 4] for part in (1, 2, 3)]
        found += [record[:-1], record[1:], record + record]
        found += [record[:middle] + soil + record[middle:] for soil in (b"\x00", b"\xff", b"\xed\xa0\x80", b"\r")]
        found.append(record[:middle] + b" " * LONG_BYTES + record[middle:])
    return list(dict.fromkeys(found))


def bad_line_findings(adapter: Adapter, samples: Samples) -> list[str]:
    """Returns one line for each bad record that is neither read nor rejected."""
    found: dict[str, tuple[str, list[bytes]]] = {}
    batches: list[str] = []
    for side, own in (("primary", samples.primary), ("foreign", samples.foreign)):
        file = own[0].file if own else LogFile("bad.log")
        records = bad_records(own)
        for record in records:
            for fault in _faults(adapter, side, record, file):
                found.setdefault(_ALIKE.sub("#", f"{side} {fault}"), (f"{side} {fault}", []))[1].append(record)
        batches += _batch_faults(adapter, side, records, file)
    return [f"{fault} (record {_first_of(records)})" for fault, records in found.values()] + batches


def _first_of(records: Sequence[bytes]) -> str:
    more = len(records) - 1
    return f"{shown(records[0])} and {more} more" if more else shown(records[0])


def shown(record: bytes) -> str:
    """Returns a record's beginning and length, for display."""
    if len(record) <= SHOWN_BYTES:
        return repr(record)
    return f"{record[:SHOWN_BYTES]!r}… of {len(record)} bytes"


def _faults(adapter: Adapter, side: str, record: bytes, file: LogFile) -> Iterator[str]:
    for method in methods(adapter, side):
        given = asked(adapter, partial(method.ask, record, file))
        if isinstance(given, BadRecord):
            one_line = isinstance(given.reason, str) and given.reason and "\n" not in given.reason
            fault = "" if one_line else f"BadRecord({given.reason!r}): the reason must be one line of text"
        elif isinstance(given, Fault):
            fault = given.reason if given.hung else f"{given.reason}; raise BadRecord(reason) instead"
        else:
            fault = method.fault(given) or _made_up(record, given)
        if fault:
            yield f"{method.name}: {fault}"


def _made_up(record: bytes, header: object) -> str:
    if (record == b"" or record in RUBBISH) and isinstance(header, ForeignHeader):
        return "a header was found in a line without one; raise BadRecord(reason)"
    return ""


def _batch_faults(adapter: Adapter, side: str, records: list[bytes], file: LogFile) -> list[str]:
    """Checks that one bad record does not affect others in its batch."""
    method = "primary_keys" if side == "primary" else "header_columns"
    lines = [record for record in records if b"\n" not in record and b"\r" not in record]
    if side == "primary":
        block = b"".join(line + b"\n" for line in lines)
        given: object = Guard(adapter).many(lambda: adapter.primary_keys(block, file))
    else:
        given = Guard(adapter).many(lambda: adapter.header_columns(lines, file).rows())
    if isinstance(given, Fault):
        return [f"{method} with bad records: {given.reason}"]
    number = len(given) if isinstance(given, list | tuple) else None
    if number != len(lines):
        return [f"{method} gave {number} answers for {len(lines)} records, some of them bad"]
    return []
