"""Measures latencies live: follows the outputs of all datacentres until each verdict is seen."""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson

READ_MAX = 8 << 20  # bytes read from one file at once
RECENT = 5_000  # number of latest events in the displayed percentiles
KINDS = ("joined", "unmatched")


class NewLines:
    """Reads each line of growing outputs once, even if files are rolled and compressed meanwhile."""

    def __init__(self) -> None:
        self._read: dict[tuple[Path, str], int] = {}  # uncompressed bytes read of each file

    def of(self, directory: Path) -> Iterator[list[bytes]]:
        """Yields blocks of new lines of ``joined/`` or another output directory."""
        for name in sorted({path.name.removesuffix(".gz") for path in directory.glob("*.jsonl*")}):
            while name.endswith(".jsonl"):
                at = self._read.get((directory, name), 0)
                data = _from(directory, name, at)
                whole = data.rfind(b"\n") + 1
                if not whole:
                    break
                self._read[directory, name] = at + whole
                yield data[:whole].splitlines()


def _from(directory: Path, name: str, at: int) -> bytes:
    try:
        with open(directory / name, "rb") as file:
            file.seek(at)
            return file.read(READ_MAX)
    except FileNotFoundError:  # rolled and compressed meanwhile, or removed
        try:
            return gzip.decompress((directory / f"{name}.gz").read_bytes())[at:]
        except FileNotFoundError:
            return b""


class Latencies:
    """Times from the write of a click's line to the moment its joined record was made."""

    def __init__(self, outputs: Iterable[Path], arrived_ns: Mapping[str, int]) -> None:
        """``outputs``: ``joined/`` directories. ``arrived_ns``: click id -> wall time, filled by the feed."""
        self._outputs = list(outputs)
        self._arrived_ns = arrived_ns
        self._new = NewLines()
        self.all_ms: list[float] = []

    def follow(self) -> None:
        for line in (line for directory in self._outputs for lines in self._new.of(directory) for line in lines):
            record = orjson.loads(line)
            arrived_ns = self._arrived_ns.get(record["event_id"])
            if arrived_ns is not None:
                self.all_ms.append((_made_ns(record["joined_at"]) - arrived_ns) / 1e6)

    def recent(self) -> tuple[float, float, float]:
        """p50, p90 and p99 in ms of the latest events."""
        return percentiles(self.all_ms[-RECENT:])


def _made_ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1e6) * 1000


def percentiles(values: Iterable[float]) -> tuple[float, float, float]:
    """p50, p90, p99; zeros if there are too few values."""
    listed = sorted(values)
    if len(listed) < 2:
        return (0.0, 0.0, 0.0)
    cuts = statistics.quantiles(listed, n=100, method="inclusive")
    return (cuts[49], cuts[89], cuts[98])


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of an output. Times are wall times, nanoseconds."""

    written_ns: int  # when a datacentre's logs had everything needed
    seen_ns: int
    joined: bool
    made_ns: int = 0  # shortly before its id was registered
    event: str = ""
    datacentre: str = ""


class Follower:
    """Reads new lines of the outputs and notes when each event was first seen."""

    def __init__(
        self,
        outputs: Mapping[str, Path],
        complete_ns: Callable[[str, str | None], int | None],
        now_ns: Callable[[], int],
    ) -> None:
        """``outputs``: datacentre -> its output directory. ``complete_ns(event, primary's key)``: the time when both
        were written; ``None`` if this run did not write them."""
        self._outputs = outputs
        self._complete_ns = complete_ns
        self._now_ns = now_ns
        self._new = NewLines()
        self._seen: set[str] = set()
        self.verdicts: list[Verdict] = []
        # datacentre -> output -> lines
        self.lines: dict[str, dict[str, int]] = {name: dict.fromkeys((*KINDS, "rejected"), 0) for name in outputs}
        self.twice = 0  # lines of events that already had one

    @property
    def events(self) -> int:
        return len(self._seen)

    def follow(self) -> None:
        for datacentre, output in self._outputs.items():
            for kind in self.lines[datacentre]:
                for lines in self._new.of(output / kind):
                    now = self._now_ns()
                    self.lines[datacentre][kind] += len(lines)
                    for line in lines if kind in KINDS else ():
                        self._note(orjson.loads(line), kind, now, datacentre)

    def _note(self, record: dict[str, str], kind: str, now: int, datacentre: str) -> None:
        event = record["event_id"]
        if event in self._seen:
            self.twice += 1
            return
        self._seen.add(event)
        joined = kind == "joined"
        written = self._complete_ns(event, record["key"] if joined else None)
        if written is not None:
            made = _made_ns(record["joined_at" if joined else "decided_at"])
            self.verdicts.append(Verdict(written, now, joined, made, event, datacentre))
