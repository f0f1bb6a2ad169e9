"""A deployment of two datacentres that has run without a fault, as files: logs, outputs, registry. And its defects.

Outputs are built with the joiner's envelope, not with the verification's code. Every defect says which findings it
must lead to.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.config.settings import Join, Limits
from photon.eventstore.api import PrimaryRecord
from photon.idregistry.api import Digester
from photon.joiner.api import ForeignEvent
from photon.joiner.verdicts import ABSENT_REASON
from photon.lab.demo.generator import Disorder, Generator
from photon.spark.classes import Class
from photon.spark.shipped_adapter import adapter_spec
from photon.spark.sources import JoinSource, LogSource, OutputSource
from tests.lines import joined_lines, undone_lines

KEY = b"a key of the deployment, secret!"
PRIMARY = {"format": "jsonl", "key": "query_id"}
FOREIGN = {"format": "jsonl", "key": "query_id", "id": "click_id", "time": {"field": "time_us", "unit": "us"}}
SITES = ("east", "west")
HOUR_NS = 3_600_000_000_000
AT_NS = 1_760_100_000_000_000_000


@dataclass
class Written:
    """A line of an output file."""

    site: str
    kind: str
    line: bytes


@dataclass
class Entry:
    """The registry's entry."""

    digest: bytes
    time_ns: int
    token: str
    kind: str
    site: str
    state: str = "cleared"
    retired: bool = False

    def row(self) -> tuple[Any, ...]:
        """As ``schemas.REGISTRY``."""
        hour = self.time_ns // HOUR_NS
        return (1, self.digest, self.time_ns, hour, self.token, self.state, self.kind, 0, 0, 1, self.site,
                f"{self.site}-1", self.retired)  # fmt: skip


@dataclass
class Deployment:
    """Contents of the deployment; ``write_outputs`` puts ``lines`` into files."""

    root: Path
    lines: list[Written] = field(default_factory=list)
    registry: dict[str, Entry] = field(default_factory=dict)  # by event id
    # (class, event id) of each finding that a defect must lead to.
    expected: Counter[tuple[str, str]] = field(default_factory=Counter)

    def joined(self) -> list[Written]:
        """Lines of joined events, in a fixed order."""
        return [each for each in self.lines if each.kind == "joined"]

    def source(self) -> JoinSource:
        join = Join(primary=PRIMARY, foreign=FOREIGN)
        return JoinSource(join="clicks", adapter=adapter_spec("clicks", join, self.root, Limits()), key=KEY)

    def logs(self, side: str) -> list[LogSource]:
        return [LogSource(datacentre=site, directory=str(self.root / site / side)) for site in SITES]

    def outputs(self) -> list[OutputSource]:
        places = ((site, self.root / site / "output", self.root / site / "state") for site in SITES)
        return [OutputSource(datacentre=site, output=str(out), state=str(state)) for site, out, state in places]

    def write_outputs(self) -> None:
        """Two files a kind; a dispatcher's lines, which have no token, are in separate files."""
        for site in SITES:
            output, slots = self.root / site / "output", self.root / site / "state"
            published: dict[str, dict[str, int]] = {f"{site}-1": {}, "dispatcher": {}}
            for kind in ("joined", "unmatched", "filtered", "rejected", "late"):
                (output / kind).mkdir(parents=True, exist_ok=True)
                own = [each.line for each in self.lines if (each.site, each.kind) == (site, kind)]
                slot = "dispatcher" if kind in ("rejected", "late") else f"{site}-1"
                for number, part in enumerate((own[::2], own[1::2]), 1):
                    name = f"{kind}/{slot}-{number:06}.jsonl"
                    data = b"".join(part)
                    (output / name).write_bytes(data)
                    published[slot][name] = len(data)
            for slot, files in published.items():
                state = slots / ("exports" if slot == "dispatcher" else "slots") / slot
                state.mkdir(parents=True, exist_ok=True)
                said = {"version": 1, "slot": slot, "files": files, "rolled": []}
                (state / "durable.json").write_text(json.dumps(said))


def make(root: Path, seed: int, clicks: int = 300) -> Deployment:
    """Each event is in both copies of the logs, except a few that only one datacentre has."""
    generator = Generator(seed, clicks=clicks, seconds=clicks / 2, queries_per_click=3,
                          disorder=Disorder(unmatched=0.05, duplicated=0.03, malformed=0.02))  # fmt: skip
    rnd = random.Random(seed)
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    for site in SITES:
        for side, is_primary in (("queries", True), ("clicks", False)):
            own = [line.data for line in lines if line.primary is is_primary and (is_primary or rnd.random() < 0.97)]
            directory = root / site / side
            directory.mkdir(parents=True)
            names = ("a.log.1", "a.log") if side == "clicks" else ("q-0.log", "q-1.log")  # one was rotated
            for name, part in zip(names, (own[: len(own) // 2], own[len(own) // 2 :]), strict=True):
                (directory / name).write_bytes(b"".join(part))
    deployment = Deployment(root)
    adapter = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})
    _join(deployment, adapter, rnd)
    deployment.write_outputs()
    return deployment


def _records(directory: Path) -> list[tuple[LogFile, int, bytes]]:
    found = []
    for path in sorted(directory.iterdir(), key=lambda path: path.name != "a.log.1"):
        offset = 0
        for line in path.read_bytes().splitlines(keepends=True):
            found.append((LogFile(path.name), offset, line.rstrip(b"\n")))
            offset += len(line)
    return found


def _join(deployment: Deployment, adapter: ConfiguredAdapter, rnd: random.Random) -> None:
    digester, envelope = Digester(KEY, "clicks"), Envelope()
    for batch, site in enumerate(rnd.sample(SITES, 2), 1):
        primaries: dict[bytes, PrimaryRecord] = {}
        for file, offset, record in _records(deployment.root / site / "queries"):
            primaries.setdefault(adapter.primary_key(record, file), PrimaryRecord(record, file, offset))
        for number, (file, offset, record) in enumerate(_records(deployment.root / site / "clicks")):
            try:
                header = adapter.foreign_header(record, file)
            except BadRecord as bad:
                line = envelope.unreadable(record, file, offset, bad.reason, at_ns=AT_NS)
                deployment.lines.append(Written(site, "rejected", line))
                continue
            assert header.event_id is not None
            name = header.event_id.decode()
            if name in deployment.registry or (batch == 1 and rnd.random() < 0.5):
                continue  # registered before, or left to the other datacentre
            digest = digester.digest(header.event_id)
            event = ForeignEvent(header.event_id, digest, header.event_time_ns, header.key, record, file, offset, 0)
            token = (batch << 40) | (number // 50)
            found = primaries.get(header.key)
            if found is None:
                kind = "unmatched"
                (line,) = undone_lines(envelope, [event], [ABSENT_REASON], token=token, at_ns=AT_NS)
            else:
                kind = "joined"
                payload = adapter.join(record, file, found.record, found.file)
                assert isinstance(payload, Joined)
                (line,) = joined_lines(envelope, [event], [found], [payload], token=token, at_ns=AT_NS)
            deployment.lines.append(Written(site, kind, line))
            deployment.registry[name] = Entry(digest, header.event_time_ns, f"{token:016x}", kind, site)
    _left_over(deployment, adapter, digester, envelope)


def _other(site: str) -> str:
    return SITES[1 - SITES.index(site)]


def _left_over(deployment: Deployment, adapter: ConfiguredAdapter, digester: Digester, envelope: Envelope) -> None:
    """Events that one datacentre left to another that has no copy of them."""
    for site in SITES:
        primaries: dict[bytes, PrimaryRecord] = {}
        for file, offset, record in _records(deployment.root / site / "queries"):
            primaries.setdefault(adapter.primary_key(record, file), PrimaryRecord(record, file, offset))
        for file, offset, record in _records(deployment.root / site / "clicks"):
            try:
                header = adapter.foreign_header(record, file)
            except BadRecord:
                continue
            assert header.event_id is not None
            if header.event_id.decode() in deployment.registry:
                continue
            digest = digester.digest(header.event_id)
            event = ForeignEvent(header.event_id, digest, header.event_time_ns, header.key, record, file, offset, 0)
            found, token = primaries.get(header.key), 9 << 40
            if found is None:
                (line,) = undone_lines(envelope, [event], [ABSENT_REASON], token=token, at_ns=AT_NS)
            else:
                payload = adapter.join(record, file, found.record, found.file)
                assert isinstance(payload, Joined)
                (line,) = joined_lines(envelope, [event], [found], [payload], token=token, at_ns=AT_NS)
            kind = "unmatched" if found is None else "joined"
            deployment.lines.append(Written(site, kind, line))
            entry = Entry(digest, header.event_time_ns, f"{token:016x}", kind, site)
            deployment.registry[header.event_id.decode()] = entry


# -- defects -----------------------------------------------------------------------------------------------------
Defect = Callable[[Deployment, Written, random.Random], None]


def event_of(written: Written) -> str:
    """Its event id. Raises ValueError for a torn line."""
    return _event_of(written.line)


@cache
def _event_of(line: bytes) -> str:
    found = json.loads(line)["event_id"]
    assert isinstance(found, str)
    return found


def _expect(deployment: Deployment, kind: Class, event: str) -> None:
    deployment.expected[str(kind), event] += 1


def removed(kind: Class, state: str = "", retired: bool = False) -> Defect:
    """Removes the record; the registry's entry, or its absence, says in which way it is lost."""

    def defect(deployment: Deployment, at: Written, rnd: random.Random) -> None:
        event = event_of(at)
        deployment.lines.remove(at)
        entry = deployment.registry.pop(event)
        if state:
            deployment.registry[event] = replace(entry, state=state, retired=retired)
        _expect(deployment, kind, event)

    return defect


def unrejected(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """Removes the record of an unreadable line; it has no id."""
    deployment.lines.remove(rnd.choice([each for each in deployment.lines if each.kind == "rejected"]))
    _expect(deployment, Class.LOST_UNREADABLE, "")


def doubled(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """In the same datacentre."""
    deployment.lines.insert(rnd.randrange(len(deployment.lines)), replace(at))
    _expect(deployment, Class.DUPLICATED, event_of(at))


def doubled_across(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """The other datacentre joined it too: from its own copy of the logs, so that the record itself is right."""
    other = _other(at.site)
    event = event_of(at)
    adapter = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})
    for file, offset, record in _records(deployment.root / other / "clicks"):
        if event.encode() not in record or at.kind != "joined":
            continue
        header = adapter.foreign_header(record, file)
        for primary_file, primary_offset, primary in _records(deployment.root / other / "queries"):
            if adapter.primary_key(primary, primary_file) == header.key:
                digest = deployment.registry[event].digest
                one = ForeignEvent(event.encode(), digest, header.event_time_ns, header.key, record, file, offset, 0)
                payload = adapter.join(record, file, primary, primary_file)
                assert isinstance(payload, Joined)
                found = PrimaryRecord(primary, primary_file, primary_offset)
                (line,) = joined_lines(Envelope(), [one], [found], [payload], token=77, at_ns=AT_NS)
                deployment.lines.append(Written(other, "joined", line))
                _expect(deployment, Class.DUPLICATED_ACROSS, event)
                return
    doubled(deployment, at, rnd)


def corrupted(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """One member of the record."""
    said = json.loads(at.line)
    member = rnd.choice(["foreign", "primary", "key", "event_time_ns", "source", "primary_source"])
    if at.kind != "joined":
        member = rnd.choice(["record", "key", "event_time_ns", "source"])
    if member == "foreign":
        said["foreign"]["cost_micros"] += 1
    elif member == "primary":
        said["primary"]["bid"] += 1
    elif member == "key":
        said["key"] += "0"
    elif member == "record":
        said["record"] = said["record"][:-1] + " }"
    elif member == "event_time_ns":
        said["event_time_ns"] += 1
    else:
        said[member]["offset"] += 1
    at.line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    _expect(deployment, Class.WRONGLY_JOINED, event_of(at))


def invented(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """A record of an event that was never logged."""
    event = f"10.9.9.9:1:{rnd.randrange(10**15, 10**16)}"
    line = at.line.replace(event_of(at).encode(), event.encode())
    deployment.lines.append(replace(at, line=line))
    _expect(deployment, Class.INVENTED, event)


def source_gone(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """A record of an event whose raw log is missing."""
    invented(deployment, at, rnd)
    added = deployment.lines[-1]
    said = json.loads(added.line)
    said["source"]["file"] = "gone.log"
    added.line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    event = event_of(added)
    deployment.expected[str(Class.INVENTED), event] -= 1
    _expect(deployment, Class.LOG_GONE, event)


def torn(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """Half of a record, with a line end: its event is lost, as far as anybody can tell."""
    _expect(deployment, Class.LOST_CLEARED, event_of(at))
    at.line = at.line[: rnd.randrange(20, len(at.line) - 5)] + b"\n"
    deployment.expected[str(Class.TORN), ""] += 1


def made_joined(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """An unmatched event that is joined in the output."""
    chosen = rnd.choice(
        [each for each in deployment.lines if each.kind == "unmatched" and _untouched(deployment, each)]
    )
    said, other = json.loads(chosen.line), json.loads(at.line)
    said.pop("reason")
    said |= {"foreign": json.loads(said.pop("record")), "primary": other["primary"]}
    said |= {"primary_source": other["primary_source"]}
    chosen.line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    chosen.kind = "joined"
    event = event_of(chosen)
    deployment.registry[event] = replace(deployment.registry[event], kind="joined")
    _expect(deployment, Class.SHOULD_BE_UNMATCHED, event)


def made_unmatched(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """A joined event that is unmatched in the output."""
    said = json.loads(at.line)
    record = json.dumps(said.pop("foreign"), separators=(",", ":"))
    said.pop("primary")
    said.pop("primary_source")
    at.line = json.dumps(said | {"reason": ABSENT_REASON, "record": record}, separators=(",", ":")).encode() + b"\n"
    at.kind = "unmatched"
    event = event_of(at)
    deployment.registry[event] = replace(deployment.registry[event], kind="unmatched")
    _expect(deployment, Class.PRIMARY_EXISTS, event)


def entry_dropped(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """Removed from the registry."""
    event = event_of(at)
    del deployment.registry[event]
    _expect(deployment, Class.REGISTRY_MISSING, event)


def entry_altered(deployment: Deployment, at: Written, rnd: random.Random) -> None:
    """Changed in the registry."""
    event = event_of(at)
    entry = deployment.registry[event]
    change: dict[str, Any] = rnd.choice(
        [{"token": "00000000000000ff"}, {"kind": "filtered"}, {"time_ns": entry.time_ns + 1},
         {"site": _other(at.site)}, {"state": "reopened"}]
    )  # fmt: skip
    deployment.registry[event] = replace(entry, **change)
    _expect(deployment, Class.REGISTRY_DIFFERS, event)


def _untouched(deployment: Deployment, written: Written) -> bool:
    try:
        here = event_of(written)
        return not any(event == here for _, event in deployment.expected)
    except ValueError:
        return False


DEFECTS: tuple[Defect, ...] = (
    removed(Class.LOST_CLEARED, "cleared"), removed(Class.LOST_OWNED, "owned"),
    removed(Class.LOST_RETIRED, "owned", retired=True), removed(Class.LOST_RETIRED, "reopened"),
    removed(Class.LOST_UNREGISTERED), unrejected, doubled, doubled_across, corrupted, invented, source_gone, torn,
    made_joined, made_unmatched, entry_dropped, entry_altered,
)  # fmt: skip
# The classes of planted defects.
ALL = {str(each) for each in Class} - {str(Class.CORRECT), str(Class.LATE), str(Class.PENDING)}


def plant(deployment: Deployment, seed: int, each: int) -> None:
    """``each`` defects of every class, in random places, never two in one event."""
    rnd = random.Random(seed)
    for defect in DEFECTS * each:
        joined = [one for one in deployment.joined() if _untouched(deployment, one)]
        defect(deployment, rnd.choice(joined), rnd)
    assert {kind for kind, _ in deployment.expected} == ALL
    deployment.write_outputs()
