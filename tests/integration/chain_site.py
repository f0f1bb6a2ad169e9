"""Three streams and three joins, each on top of the one before, as real processes, and their expected output.

``clicks`` attaches to a click its query; ``purchases`` to a purchase the joined click, which is its primary;
``receipts`` to a joined purchase, which is its foreign event, the shop.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from photon.config.loader import load
from photon.dispatcher.ledger import Verdict
from photon.fleet.ledger import accounts, by_join, together
from photon.lab.demo.check import records as output_records
from photon.lab.onlooker import alarms_in
from photon.supervision.deployment import Deployment
from photon.supervision.ports import free_ports
from photon.supervision.supervisor import Service, Supervisor
from tests.integration.rig import STEP_S

JOINS = """
key_file = "key"
[join.clicks]
unmatched_after = "2s"
primary = { format = "jsonl", key = "query_id" }
foreign = { format = "jsonl", key = "query_id", id = "click_id", time = { field = "t", unit = "us" } }
[join.purchases]
{purchases}
primary = { join = "clicks", key = "foreign.click_id" }
foreign = { format = "jsonl", key = "click_id", id = "purchase_id", time = { field = "t", unit = "us" } }
[join.receipts]
primary = { format = "jsonl", key = "shop" }
foreign = { join = "purchases", key = "foreign.shop" }
[output]
roll_size = "64KiB"
roll_age = "3s"
{copies}
[registry]
shards = 2
"""
STAGES = ("clicks", "purchases", "receipts")
STREAMS = ("queries", "clicks", "purchases", "shops")
SETTLE_S = 240.0
READY_S = 120.0


class ChainSite:
    def __init__(
        self,
        base: Path,
        datacentres: Sequence[str] = ("east",),
        stages: Sequence[str] = STAGES,
        *,
        together: bool = False,
        purchases: str = "",
        apart: bool = False,
    ) -> None:
        """``purchases``: more of that join's table; ``apart``: each datacentre is a machine with its own directories,
        where copies of the other's output are kept."""
        self.base, self.datacentres, self.stages = base, tuple(datacentres), tuple(stages)
        self.homes = {name: base / f"machine-{name}" if apart else base for name in datacentres}
        copies = "copies = 2" if apart else ""
        text = JOINS.replace("{purchases}", purchases).replace("{copies}", copies)
        text += "".join(self._tables(together, apart))
        for name, home in self.homes.items():
            for stream in STREAMS:
                (home / name / stream).mkdir(parents=True)
            (home / "photon.toml").write_text(text)
            (home / "key").write_bytes(b"k" * 32)
            (home / "run" / "logs").mkdir(parents=True, exist_ok=True)
        self.file = self.homes[datacentres[0]] / "photon.toml"
        self.deployment = self._deployment(self.file.parent)
        self.pairs: dict[str, str] = {}  # click -> its query, if there is one
        self.bought: dict[str, str] = {}  # purchase -> its click

    @staticmethod
    def _deployment(home: Path) -> Deployment:
        file = home / "photon.toml"
        return Deployment(file, load(file, environment={}), home / "run")

    def services_apart(self) -> list[Service]:
        """Each service on the machine of its datacentre; the registry's replicas on the first one."""
        first, found = self.datacentres[0], []
        for dc, home in self.homes.items():
            own = {self.pipeline(dc, stage) for stage in self.stages} | ({""} if dc == first else set())
            found += [each for each in self._deployment(home).services() if each.datacentre in own]
        return found

    def _tables(self, together: bool, apart: bool) -> Iterator[str]:
        ports = iter(free_ports(3 + 7 * len(self.stages) * len(self.datacentres)))

        def address() -> str:
            return f"127.0.0.1:{next(ports)}"

        for n in (1, 2, 3):
            yield f'[registry.replicas.r{n}]\naddress = "{address()}"\ndirectory = "r{n}"\n'
        for dc in self.datacentres:
            for stage in self.stages:
                name = self.pipeline(dc, stage)
                logs = {"clicks": ("queries", "clicks"), "purchases": ("", "purchases"), "receipts": ("shops", "")}
                yield f'[datacentre.{name}]\njoin = "{stage}"\nregion = "{dc}"\n'
                for side, stream in zip(("primary", "foreign"), logs[stage], strict=True):
                    yield f'{side} = "{dc}/{stream}"\n' if stream else ""
                yield f'output = "{dc}/{stage}.output"\nstate = "{dc}/{stage}.state"\n'
                yield f'address = "{address()}"\nstatus = ""\n'
                yield f"[datacentre.{name}.apart]\n"
                parts = [] if together else ["eventstore", "joiner", "dispatcher", "verifier"]
                for part in (*parts, *(["relay"] if "" in logs[stage] else []), *(["copies"] if apart else [])):
                    yield f'{part} = "{address()}"\n'

    @staticmethod
    def pipeline(datacentre: str, stage: str) -> str:
        return datacentre if stage == "clicks" else f"{datacentre}-{stage}"

    # -- the streams -------------------------------------------------------------------------------------------------
    async def feed(self, draw: random.Random, events: int, seconds: float, *, ago_s: float = 0.0) -> None:
        """Writes all streams to all datacentres, with event times in the past. A tenth of the clicks have no query; a
        purchase may come before its click, and a click before its query."""
        now_us = time.time_ns() // 1000 - int(ago_s * 1e6)
        lines: list[tuple[float, str, dict[str, Any]]] = []
        for n in range(events):
            at = n / events * seconds
            query, click = f"q{n:06d}", f"c{n:06d}"
            if n % 10:
                lines.append((at + draw.uniform(-0.3, 0.5), "queries", {"query_id": query, "words": f"words {n}"}))
                self.pairs[click] = query
            lines.append((at, "clicks", {"click_id": click, "query_id": query, "t": now_us + n}))
            for k in range(draw.choice((0, 1, 1, 2))):
                purchase = {"purchase_id": f"p{n:06d}-{k}", "click_id": click, "shop": f"s{n % 7}", "t": now_us + n}
                lines.append((at + draw.uniform(-0.5, 1.0), "purchases", purchase))
                self.bought[purchase["purchase_id"]] = click
        lines += [(draw.uniform(0, seconds), "shops", {"shop": f"s{n}", "city": f"city {n}"}) for n in range(7)]
        begun = time.monotonic()
        for at, stream, record in sorted(lines, key=lambda line: line[0]):
            if (ahead := STEP_S * math.ceil(at / STEP_S) - (time.monotonic() - begun)) > 0:
                await asyncio.sleep(ahead)
            self._write(stream, orjson.dumps(record) + b"\n")

    def add(self, stream: str, **record: object) -> None:
        self._write(stream, orjson.dumps({"t": time.time_ns() // 1000, **record}) + b"\n")

    def _write(self, stream: str, line: bytes) -> None:
        for dc in self.datacentres:
            with open(self.homes[dc] / dc / stream / f"{stream}.log", "ab") as log:
                log.write(line)

    # -- what comes out ----------------------------------------------------------------------------------------------
    def records(self, stage: str, kind: str = "joined") -> list[dict[str, Any]]:
        """Whole lines of all datacentres."""
        directories = [self.homes[dc] / dc / f"{stage}.output" / kind for dc in self.datacentres]
        return [record for directory in directories for record in output_records(directory)]

    def ids(self, stage: str, kind: str) -> list[str]:
        return [record["event_id"] for record in self.records(stage, kind)]

    def expected(self) -> dict[str, set[tuple[str, ...]]]:
        """Ids in any record, per stage."""
        triples = {(p, c, self.pairs[c]) for p, c in self.bought.items() if c in self.pairs}
        return {
            "clicks": set(self.pairs.items()),
            "purchases": triples,
            "receipts": {(f"s{int(c[1:]) % 7}", p, c, q) for p, c, q in triples},
        }

    def found(self) -> dict[str, list[tuple[str, ...]]]:
        return {stage: [_ids(stage, record) for record in self.records(stage)] for stage in self.stages}

    async def settled(self, supervisor: Supervisor) -> None:
        """All expected records are there."""
        deadline = time.monotonic() + SETTLE_S
        wanted = {stage: len(ids) for stage, ids in self.expected().items() if stage in self.stages}
        while (got := {stage: len(set(ids)) for stage, ids in self.found().items()}) != wanted:
            assert time.monotonic() < deadline, (got, wanted, supervisor.states())
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)  # anything that comes too often comes now

    def verify(self) -> None:
        """Each triple is there once over all datacentres, and nothing else."""
        for stage, ids in self.found().items():
            twice = [each for each, count in Counter(ids).items() if count > 1]
            assert not twice, (stage, twice[:5])
            assert set(ids) == self.expected()[stage], stage

    def verify_views(self) -> None:
        """Neither the verifiers nor the ledgers object, at any stage."""
        assert not (found := alarms_in(self.deployment.settings, self.base)), found
        for account in accounts(self.deployment.settings, self.base):
            assert account.whole is not None
            assert not account.unbalanced, account
        for join, each in by_join(accounts(self.deployment.settings, self.base)).items():
            assert together(each).total[Verdict.JOINED] == len(self.expected()[join]), join


def _ids(stage: str, record: dict[str, Any]) -> tuple[str, ...]:
    foreign, primary = record["foreign"], record["primary"]
    if stage == "clicks":
        assert record["event_id"] == foreign["click_id"]
        return (foreign["click_id"], primary["query_id"])
    if stage == "purchases":
        assert record["event_id"] == foreign["purchase_id"]
        assert foreign["click_id"] == primary["event_id"]
        return (foreign["purchase_id"], primary["foreign"]["click_id"], primary["primary"]["query_id"])
    assert record["event_id"] == foreign["event_id"]
    assert record["event_time_ns"] == foreign["event_time_ns"]
    return (primary["shop"], *_ids("purchases", foreign))
