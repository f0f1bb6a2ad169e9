"""When each event's verdict can first be seen in the outputs: follows the files of every datacentre."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from photon.lab.demo.latency import NewLines

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
        self._new = NewLines()
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
                for lines in self._new.of(output / kind):
                    now = self._now_ns()
                    self.lines[datacentre][kind] += len(lines)
                    for line in lines if kind in KINDS else ():
                        self._note(orjson.loads(line), kind, now)

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
