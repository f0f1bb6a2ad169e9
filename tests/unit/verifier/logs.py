"""A pair of small logs, an adapter for them, and the lines that their records produce."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LINES, Adapter, Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import ForeignEvent
from photon.batch.records import PrimaryRecord
from photon.verifier.source_finder import SourceSide
from tests.lines import event_of, joined_lines, undone_lines

ADAPTER = ConfiguredAdapter(
    {
        "foreign": {"format": "jsonl", "key": "q", "id": "id", "time": {"field": "t", "unit": "s"}},
        "primary": {"format": "jsonl", "key": "q"},
    }
)
FOREIGN, PRIMARY = "clicks.log", "queries.log"
TOKEN = 1 << 40 | 7
AT_NS = 1_700_000_000 * 10**9


def foreign_record(n: int) -> bytes:
    return b'{"id":"c%d","q":"q%d","t":%d,"text":"<%d>"}' % (n, n, 1_600_000_000 + n, n)


def primary_record(n: int) -> bytes:
    return b'{"q":"q%d","words":["a","b%d"]}' % (n, n)


def log_of(records: Sequence[bytes]) -> bytes:
    return b"".join(record + b"\n" for record in records)


def offset_of(records: Sequence[bytes], n: int) -> int:
    return sum(len(record) + 1 for record in records[:n])


class Logs:
    """``count`` foreign records and their primaries, in one file each."""

    def __init__(self, directory: Path, count: int) -> None:
        self.foreign = directory / "foreign"
        self.primary = directory / "primary"
        self.foreign_records = [foreign_record(n) for n in range(count)]
        self.primary_records = [primary_record(n) for n in range(count)]
        for place, name, records in (
            (self.foreign, FOREIGN, self.foreign_records),
            (self.primary, PRIMARY, self.primary_records),
        ):
            place.mkdir(parents=True)
            (place / name).write_bytes(log_of(records))

    def sides(self) -> tuple[SourceSide, SourceSide]:
        return side(self.foreign), side(self.primary)

    def event(self, n: int) -> ForeignEvent:
        record = self.foreign_records[n]
        time_ns = (1_600_000_000 + n) * 10**9
        return event_of(b"c%d" % n, b"q%d" % n, time_ns, record, LogFile(FOREIGN), offset_of(self.foreign_records, n))

    def primary_of(self, n: int) -> PrimaryRecord:
        return PrimaryRecord(self.primary_records[n], LogFile(PRIMARY), offset_of(self.primary_records, n))

    def joined(self, *numbers: int, adapter: Adapter = ADAPTER, token: int = TOKEN) -> list[bytes]:
        events, primaries = [self.event(n) for n in numbers], [self.primary_of(n) for n in numbers]
        payloads = []
        for event, primary in zip(events, primaries, strict=True):
            made = adapter.join(event.record, event.file, primary.record, primary.file)
            assert isinstance(made, Joined)
            payloads.append(made)
        return joined_lines(Envelope(), events, primaries, payloads, token=token, at_ns=AT_NS)

    def undone(self, *numbers: int, reason: str = "no primary event has this key") -> list[bytes]:
        events = [self.event(n) for n in numbers]
        return undone_lines(Envelope(), events, [reason] * len(events), token=TOKEN, at_ns=AT_NS)


def side(directory: Path) -> SourceSide:
    return SourceSide(directory, ("**/*",), LINES, has_header=False, record_max=1 << 20)
