"""`photon join --once` on generated sets, in two stages: exactly the output of a plain reference, byte for byte."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from hypothesis import Phase, assume, event, given, settings

from photon.config import log
from photon.lab.demo.check import records
from photon.local_join.join import run
from photon.local_join.options import JoinOptions
from tests.integration.join_sets import RECORD_MAX, Event, Expected, Record, SetSpec, Writer, reference, sets

EXAMPLES = 16  # not shrunk when they fail: each takes half a second
CONFIG = """
[join.set]
last_line_after = "0s"
[join.set.primary]
format = "jsonl"
key = "key"
[join.set.foreign]
format = "jsonl"
key = "key"
time = { field = "ts", unit = "ms" }
"""


@dataclass
class Site:
    """The set on disk, and its output so far."""

    base: Path
    spec: SetSpec
    lines: Counter[bytes] = field(default_factory=Counter)  # output lines, by ``log:line``
    decided: set[bytes] = field(default_factory=set)  # event ids that have a verdict
    rejected: set[tuple[str, int]] = field(default_factory=set)
    read: int = 0

    def join(self) -> dict[str, int]:
        config = self.base / "join.toml"
        spec = self.spec
        id_line = 'id = "id"\n' if spec.with_id else ""
        limits = f"[limits]\nrecord = {RECORD_MAX}\ncache = {spec.cache}\nbatch_events = {spec.batch_events}\n"
        config.write_text(CONFIG + id_line + limits + f"[registry]\nshards = {spec.shards}\n")
        options = JoinOptions(self.base / "primary", self.base / "foreign", self.base / "out", config, once=True)

        async def main() -> dict[str, int]:
            result = await run(options, stop=asyncio.Event(), show=lambda _: None, say=lambda _: None)
            assert result.unread == ()
            return result.ledger

        return uvloop.run(main())

    def output(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for name in ("joined", "unmatched", "rejected", "filtered", "late"):
            for path in sorted((self.base / "out" / name).glob("*.jsonl")):
                found.update(name.encode() + b":" + line for line in path.read_bytes().splitlines(keepends=True))
        return found

    def step(self) -> None:
        """Joins the current files, and checks that exactly the new records were added."""
        expected = reference(self.base / "primary", self.base / "foreign", with_id=self.spec.with_id)
        assume(not expected.ambiguous)
        ledger = self.join()
        output = self.output()
        added = output - self.lines
        assert not self.lines - output, "lines of the run before are gone"
        fresh = {event_id: each for event_id, each in expected.events.items() if event_id not in self.decided}
        verdicts = check_events(added, fresh)
        self.check_rejected(added, expected)
        self.lines = output
        self.decided |= fresh.keys()
        totals = Counter(line.partition(b":")[0].decode() for line in output.elements())
        assert verdicts.total() == len(fresh)
        apart = ("reread", "wasted", "retimed", "ambiguous", "unpaired")
        assert {name: count for name, count in ledger.items() if name not in apart} == {
            "read": expected.read,
            "joined": totals["joined"],
            "filtered": 0,
            "unmatched": totals["unmatched"],
            "late": 0,
            "rejected": len(expected.rejected),
            "elsewhere": 0,
            "duplicate": expected.read - len(expected.events) - len(expected.rejected),
            "pending": 0,
        }
        for name in ("duplicate", "unmatched", "rejected", "joined"):
            event(f"some {name}: {ledger[name] > 0}")

    def check_rejected(self, added: Counter[bytes], expected: Expected) -> None:
        """Each unreadable record once, with its place, its reason and its original bytes."""
        foreign = self.base / "foreign"
        new = expected.rejected - self.rejected
        by_source: dict[tuple[str, int], Record] = {r.source: r for r in read_foreign(foreign) if r.place in new}
        found = [json.loads(line.partition(b":")[2]) for line in added.elements() if line.startswith(b"rejected:")]
        assert Counter(place(each) for each in found) == Counter(by_source.keys())
        for each in found:
            record = by_source[place(each)]
            assert each["reason"]
            assert text_of(each, "record") == (record.raw[:1024] if record.oversized else record.raw)
        self.rejected |= new


def read_foreign(directory: Path) -> list[Record]:
    from tests.integration.join_sets import read_records

    return read_records(directory)


def place(line: dict[str, Any], name: str = "source") -> tuple[str, int]:
    return line[name]["file"], line[name]["offset"]


def text_of(line: dict[str, Any], name: str) -> bytes:
    raw = f"{name}_raw_base64"
    return b64decode(line[raw]) if raw in line else str(line[name]).encode()


def check_events(added: Counter[bytes], fresh: dict[bytes, list[Event]]) -> Counter[str]:
    """Each new event id has one line, exactly the one that one of the records with this id must give."""
    verdicts: Counter[str] = Counter()
    seen: Counter[bytes] = Counter()
    for each in added.elements():
        log_name, _, line = each.partition(b":")
        if log_name == b"rejected":
            continue
        fields = json.loads(line.decode("utf-8", "surrogateescape"))
        event_id = text_of(fields, "event_id")
        seen[event_id] += 1
        (chosen,) = (e for e in fresh[event_id] if e.record.source == place(fields))
        assert text_of(fields, "key") == chosen.key
        assert fields["event_time_ns"] == chosen.time_ns
        if chosen.primary is None:
            assert log_name == b"unmatched"
            assert text_of(fields, "record") == chosen.record.raw
        else:
            assert log_name == b"joined"
            assert place(fields, "primary_source") == chosen.primary.source
            spliced = b",%s,%s,", chosen.record.payload("foreign"), chosen.primary.payload("primary")
            assert spliced[0] % spliced[1:] in line
        verdicts[log_name.decode()] += 1
    assert seen == Counter(fresh.keys())
    return verdicts


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    log.configure(json=False, level=logging.ERROR)
    yield
    structlog.reset_defaults()


@given(sets)
@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_exactly_what_the_reference_says_and_once_more_only_what_is_new(spec: SetSpec) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        primary, foreign = Writer(base / "primary", foreign=False), Writer(base / "foreign", foreign=True)
        primary.first(spec.primary)
        foreign.first(spec.foreign)
        site = Site(base, spec)
        site.step()
        before = site.output()
        site.step()  # nothing is new
        assert site.output() == before
        primary.second(spec.primary, spec.roll)
        foreign.second(spec.foreign, spec.roll)
        site.step()
        assert list(records(base / "out" / "late")) == []
