"""Foreign logs of JSON lines, and what reads parts of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.logs.slices import Reading, StandingLog
from photon.adapters.logs.unended_lines import RestRule
from photon.config.disk import RealDisk
from photon.idregistry.api import Digester
from photon.spark.pipeline.journal import JoinOf, Journal, LogAt, Part, Plan
from photon.spark.pipeline.listing import LogLister
from photon.spark.pipeline.planner import PlanLimits, advanced, parts_of
from photon.spark.pipeline.reading import LogReader, PartRead
from tests.spark.small_deployment import FOREIGN, PRIMARY

ADAPTER = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})
RECORD_MAX = 1000
NOW_NS = 10**18


def click(number: int) -> bytes:
    return json.dumps({"click_id": f"c{number}", "query_id": f"q{number}", "time_us": number}).encode() + b"\n"


class Logs:
    """A directory of logs, read batch by batch."""

    def __init__(self, directory: Path, limits: PlanLimits) -> None:
        self.directory, self.limits = directory / "logs", limits
        self.directory.mkdir()
        self.journal = Journal(RealDisk(), directory / "spark")
        self.journal.prepare(JoinOf("clicks", "east"))
        self.known: dict[str, LogAt] = {}
        self.now_ns = NOW_NS
        self.reading = Reading(max_record=RECORD_MAX, rest=RestRule(60.0, lambda: self.now_ns))
        self.lister = LogLister(self.directory, self.reading, print, lambda: self.now_ns)

    def listed(self) -> Sequence[StandingLog]:
        return self.lister(self.known).logs

    def plan(self) -> list[Part]:
        return parts_of(self.listed(), self.known, [], self.limits, self.now_ns)

    def read(self, parts: Sequence[Part]) -> list[PartRead]:
        """Reads the parts where their logs are now."""
        return self.read_plan(
            Plan(number=0, incarnation=1, at_ns=NOW_NS, first_read_ns=NOW_NS, read_past_ns=0, parts=list(parts))
        )

    def read_plan(self, plan: Plan) -> list[PartRead]:
        paths = {log.identity: log.path for log in self.listed()}
        reader = LogReader(
            self.directory, self.reading, ADAPTER, Digester(b"k" * 32, "clicks"), self.journal, paths.get
        )
        return [reader(plan, part) for part in plan.parts]

    def batch(self) -> list[bytes]:
        """The ids that the next batch reads."""
        parts = self.plan()
        read = self.read(parts)
        self.known |= {log.identity: log for log in advanced(parts, [each.reached for each in read])}
        return [event_id for each in read for event_id in each.events.ids]
