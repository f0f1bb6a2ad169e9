"""When each event's verdict can first be seen in the outputs: follows the files of every datacentre."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

READ_MAX = 8 << 20
"""Of one file at once."""
KINDS = ("joined", "unmatched")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of an output. Times are wall times, nanoseconds."""

    written_ns: int
    """When all that it needs was in the logs of one datacentre."""
    seen_ns: int
    joined: bool


class Follower:
    """Reads what is new in the outputs and notes when each event was first seen."""

    def __init__(
        self,
        outputs: Mapping[str, Path],
        complete_ns: Callable[[str, str | None], int | None],
        now_ns: Callable[[], int],
    ) -> None:
        """``outputs``: datacentre -> its output directory. ``complete_ns(event, primary's key)``: when it was
        written; None: not by us."""
        self._outputs = outputs
        self._complete_ns = complete_ns
        self._now_ns = now_ns
        self._read: dict[tuple[str, str, str], int] = {}  # bytes of each file, uncompressed
        self._seen: set[str] = set()
        self.verdicts: list[Verdict] = []
        self.lines: dict[str, dict[str, int]] = {name: dict.fromkeys((*KINDS, "rejected"), 0) for name in outputs}
        """datacentre -> output -> lines"""
        self.twice = 0
        """Lines of events that had one."""

    @property
    def events(self) -> int:
        """How many have a line."""
        return len(self._seen)

    def follow(self) -> None:
        """Takes up what was written since."""
        for datacentre, output in self._outputs.items():
            for kind in self.lines[datacentre]:
                names = {path.name.removesuffix(".gz") for path in (output / kind).glob("*.jsonl*")}
                for name in sorted(name for name in names if name.endswith(".jsonl")):
                    self._follow(datacentre, output / kind, kind, name)

    def _follow(self, datacentre: str, directory: Path, kind: str, name: str) -> None:
        at = self._read.get((datacentre, kind, name), 0)
        while data := _from(directory, name, at):
            now = self._now_ns()
            whole = data.rfind(b"\n") + 1
            if not whole:
                break
            at += whole
            lines = data[:whole].splitlines()
            self.lines[datacentre][kind] += len(lines)
            if kind in KINDS:
                for line in lines:
                    self._note(orjson.loads(line), kind, now)
        self._read[datacentre, kind, name] = at

    def _note(self, record: dict[str, object], kind: str, now: int) -> None:
        event = str(record["event_id"])
        if event in self._seen:
            self.twice += 1
            return
        self._seen.add(event)
        joined = kind == "joined"
        written = self._complete_ns(event, str(record["key"]) if joined else None)
        if written is not None:
            self.verdicts.append(Verdict(written, now, joined))


def _from(directory: Path, name: str, at: int) -> bytes:
    try:
        with open(directory / name, "rb") as file:
            file.seek(at)
            return file.read(READ_MAX)
    except FileNotFoundError:  # rolled and compressed meanwhile, or withdrawn
        try:
            return gzip.decompress((directory / f"{name}.gz").read_bytes())[at:]
        except FileNotFoundError:
            return b""
