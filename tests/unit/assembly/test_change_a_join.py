"""docs/operations/change-a-join.md row by row, with two datacentres, one of which has the changed file."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.join_adapters import adapter_of
from photon.assembly.registry import agree, rule_of
from photon.assembly.samples import Logs, Samples
from photon.assembly.verdict_rule import behind, verdict_rule
from photon.batch.events import Events, ForeignEvent
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.dispatcher.errors import RuleError
from photon.dispatcher.process import state_rule
from photon.dispatcher.state import State
from photon.idregistry.api import Digester, Slot
from photon.idregistry.client.deployment_key import deployment_key
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.outcomes import Description
from photon.idregistry.core.samples import with_others
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.verdict_rules import VerdictRules
from photon.joiner.engine import JoinerEngine, JoinerLimits
from photon.joiner.opening import Surroundings
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.slot import SlotPaths
from photon.joiner.verdicts import envelope_lines
from tests.unit.idregistry.model import CLOCK
from tests.unit.joiner.helpers import FakeRegistry, FakeStore, die

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "change-a-join.md"
EVENTS = 20
LIMITS = JoinerLimits(shell=ShellLimits(insert_timeout_s=5.0, tick_s=0.005), lock_wait_s=0.2, close_s=5.0)
FILE = """
key_file = "{key}"
[join.{name}]
{join}
[join.{name}.primary]
format = "{format}"
key = "query_id"
time = {{ field = "time_us", unit = "us" }}
{primary}
[join.{name}.foreign]
format = "{format}"
key = {foreign_key}
{id}
time = {{ field = "time_us", unit = "{unit}" }}
{foreign}
{more}
"""
CODE = """
[join.clicks]
adapter = "code.py:Clicks"
options = {{ sample = {sample} }}
"""
ADAPTER = """
from photon.adapters.contract import Adapter, ForeignHeader
import json
class Clicks(Adapter):
    def foreign_header(self, record, file):
        said = json.loads(record)
        return ForeignHeader(said["query_id"].encode(), said["time_us"] * 1000, {event_id})
    def primary_key(self, record, file):
        return json.loads(record)["query_id"].encode()
    def foreign_payload(self, record, file):
        return {payload}
    def primary_payload(self, record, file):
        return record
"""
BEFORE = {
    "key": "key", "name": "clicks", "join": "", "format": "jsonl", "primary": "", "foreign_key": '"query_id"',
    "id": 'id = "click_id"', "unit": "us", "foreign": "", "more": "",
}  # fmt: skip
ID = 'said["click_id"].encode()'
DELIMITED = 'columns = ["click_id", "query_id", "time_us"]\nheader = false'


@dataclass(frozen=True)
class Case:
    """A change of the file, or of the code next to it."""

    then: Mapping[str, str] = field(default_factory=dict)
    first: Mapping[str, str] = field(default_factory=dict)
    # (option, event id, payload) before and after.
    code: tuple[tuple[str, str, str], tuple[str, str, str]] | None = None


def text(row: str) -> dict[str, str]:
    return {"format": "csv", "primary": DELIMITED, "foreign": f"{DELIMITED}\n{row}"}


CASES = {
    "`key_file`": Case({"key": "other"}),
    "`format` of a side": Case({"format": "logfmt"}),
    "`key` of a side: fields, case, parts": Case({"foreign_key": '{ field = "query_id", case = "fold" }'}),
    "`id`": Case({"id": ""}),
    "`time`: field, unit, format, zone": Case({"unit": "ms"}),
    "`framing` or `multiline`": Case(text("multiline = true"), text("")),
    "`absent`": Case(text('absent = "-"'), text("")),
    "`skip` of a side": Case({"foreign": 'skip = [{ field = "time_us", below = 0 }]'}),
    "code or options of an adapter that give another id, key or time": Case(
        code=(("1", ID, "record"), ("1", ID.replace(".encode", ".upper().encode"), "record"))
    ),
    "the join's name": Case({"name": "others"}),
    "`shape`: filters, derived and redacted fields, payloads": Case(
        {"more": '[join.clicks.shape]\nfilter = [{ field = "foreign.time_us", above = 1000005 }]'}
    ),
    "code, class or options of an adapter, id, key and time as before": Case(
        code=(("1", ID, "record"), ("2", f"bytes({ID})", "b'\"x\"'"))
    ),
    "`within`": Case(
        {"join": 'within = { before = "1h", after = "1h" }'}, {"join": 'within = { before = "1us", after = "1us" }'}
    ),
    "`unmatched`": Case({"join": 'unmatched = "inline"'}),
    "`unmatched_after` or `primary_max_delay`": Case({"join": 'unmatched_after = "1h"\nprimary_max_delay = "1s"'}),
    "`duplicates`": Case({"primary": 'duplicates = "last"'}),
    "`primary_files` or `follow_links`, wider": Case(
        {"join": 'primary_files = ["**/*", "more/*"]', "primary": 'follow_links = ["/var/log/pods"]'}
    ),
    "`foreign_files`, wider": Case({"join": 'foreign_files = ["**/*", "more/*"]'}),
    "`missing_logs`": Case({"join": 'missing_logs = "forget"'}),
    "`match`": Case({"join": 'match = "latest"\nunmatched_after = "1h"'}),
    "the character encoding of the logs": Case(text(""), text("")),
}


def rows() -> dict[str, str]:
    """Change -> Photon's reaction, as the page says."""
    found = re.findall(r"^\| (.+?) \| (refused|safe|waits|not seen) \|", PAGE.read_text(), re.MULTILINE)
    return dict(found)


def those(*what: str) -> list[str]:
    return [change for change, does in rows().items() if does in what]


def test_each_row_is_tested() -> None:
    assert rows().keys() == CASES.keys()


@dataclass(frozen=True)
class Site:
    """A datacentre's file and its results."""

    settings: Settings
    base: Path
    join: str
    adapter: Adapter

    @property
    def digester(self) -> Digester:
        return Digester(deployment_key(self.settings, self.base), self.join)

    def rule(self) -> bytes:
        return rule_of(self.settings, self.base, self.join)

    def verdict_rule(self) -> bytes:
        return verdict_rule(self.settings.join[self.join], self.adapter)

    def state_rule(self) -> bytes:
        return state_rule(self.join, self.adapter, self.digester)


def site(base: Path, case: Case, *, changed: bool) -> Site:
    base.mkdir()
    (base / "key").write_bytes(b"k" * 32)
    (base / "other").write_bytes(b"o" * 32)
    values = {**BEFORE, **case.first, **(case.then if changed else {})}
    told = FILE.format(**values)
    if case.code is not None:
        option, event_id, payload = case.code[changed]
        (base / "code.py").write_text(ADAPTER.format(event_id=event_id, payload=payload))
        told = 'key_file = "key"\n' + CODE.format(sample=option)
    (base / "photon.toml").write_text(told)
    settings = load(base / "photon.toml", environment={})
    return Site(settings, base, values["name"], adapter_of(settings, values["name"], base))


def pair(tmp_path: Path, change: str) -> tuple[Site, Site]:
    case = CASES[change]
    return site(tmp_path / "east", case, changed=False), site(tmp_path / "west", case, changed=True)


class Described:
    """A registry that was set up with another file."""

    problem = ""

    def __init__(self, join: str, rule: bytes) -> None:
        self._rules = {join: rule}

    async def describe(self, *, timeout: float) -> Description:
        return Description("r1", single_range(1), (), self._rules, CLOCK)


async def takes(old: Site, new: Site) -> bool:
    """True if a registry filled under the old file lets a service with the new one start."""
    try:
        return await agree(Described(old.join, old.rule()), new.join, new.rule(), asyncio.Event())  # type: ignore[arg-type]
    except UsageError:
        return False


async def compares(first: Site, second: Site) -> bool:
    """True if a service with the second's adapter begins where the first's has begun to read a log."""
    kept: tuple[c.Sample, ...] = ()

    async def keep(samples: Sequence[c.Sample]) -> tuple[c.Sample, ...]:
        nonlocal kept
        kept = with_others(kept, samples)
        return kept

    log = first.base.parent / "logs"
    log.mkdir(exist_ok=True)
    (log / "clicks.log").write_bytes(b'{"click_id":"c0","query_id":"q0","time_us":1}\n')
    one, other = (
        Samples(keep, of.join, of.adapter, of.digester, {"foreign": Logs(log, ("*",))}) for of in (first, second)
    )
    await one.keep_first("foreign", asyncio.Event())
    assert len(kept) == 1
    try:
        return await other.begin(asyncio.Event())
    except UsageError:
        return False


@pytest.mark.parametrize("change", those("refused"))
async def test_the_datacentre_with_the_changed_file_does_not_start(tmp_path: Path, change: str) -> None:
    east, west = pair(tmp_path, change)
    if CASES[change].code is not None:
        assert not await compares(east, west)
        assert not await compares(west, east)
        return
    with closing(State(tmp_path / "state.db", rule=east.state_rule())):
        pass
    with pytest.raises(RuleError, match="was written under another key file or other rules"):
        State(tmp_path / "state.db", rule=west.state_rule())
    if change == "the join's name":
        return  # to the registry it is another join, unknown to its replicas before they have the file
    assert not await takes(east, west)
    assert not await takes(west, east), "and the other way round"
    machine = ConfigMachine()
    assert machine._conflict(c.SetUp(single_range(1), {east.join: east.rule()})) == ""
    machine.id_rules = {east.join: east.rule()}
    assert "events would be counted twice" in machine._conflict(c.SetUp(single_range(1), {west.join: west.rule()}))


def events(of: Site) -> Events:
    log, found = LogFile("clicks.log"), []
    for n in range(EVENTS):
        record = b'{"click_id":"c%d","query_id":"q%d","time_us":%d}' % (n, n, 1_000_000 + n)
        header = of.adapter.foreign_header(record, log)
        event_id = header.event_id or b""
        found.append(
            ForeignEvent(
                event_id, of.digester.digest(event_id), header.event_time_ns, header.key, record, log, 100 * n, 0
            )
        )
    return Events.of(found)


def queries(of: range, late_us: int = 0) -> dict[bytes, bytes]:
    return {b"q%d" % n: b'{"query_id":"q%d","time_us":%d}' % (n, 1_000_000 + n + late_us) for n in of}


async def written(
    of: Site, registry: FakeRegistry, slot: str, known: dict[bytes, bytes], withholds: str = ""
) -> JoinerEngine:
    world = Surroundings(registry, FakeStore(known), RealDisk(), SystemClock(), die, lambda: slot.encode())
    paths = SlotPaths(of.base / "state", of.base / "out")
    lines = envelope_lines(Envelope())
    engine = JoinerEngine(
        Slot(slot, slot), paths, world, of.adapter, lines, limits=LIMITS, withholds=lambda: withholds
    )
    await engine.start()
    return engine


async def agreed(tmp_path: Path, change: str) -> tuple[Site, Site]:
    """Two datacentres whose files differ in this, and which both start: east has the old one."""
    east, west = pair(tmp_path, change)
    for first, second in ((east, west), (west, east)):
        assert await takes(first, second)
        assert CASES[change].code is None or await compares(first, second)
    for each in (east, west):
        with closing(State(tmp_path / "state.db", rule=each.state_rule())):
            pass
    return east, west


def out(*sites: Site, kind: str = "*") -> Counter[str]:
    found: Counter[str] = Counter()
    for of in sites:
        for path in (of.base / "out").rglob(f"{kind}/**/*.jsonl"):
            found.update(orjson.loads(line)["event_id"] for line in path.read_bytes().splitlines())
    return found


@pytest.mark.parametrize("change", those("safe"))
async def test_each_event_has_one_verdict_while_the_files_differ(tmp_path: Path, change: str) -> None:
    """Both datacentres join all events at once, one by the old file and one by the new."""
    east, west = await agreed(tmp_path, change)
    assert east.verdict_rule() == west.verdict_rule(), "nothing waits"
    registries = FakeRegistry(), FakeRegistry()
    registries[1].model = registries[0].model
    known = queries(range(0, EVENTS, 2))
    engines = [
        await written(of, registry, name, known)
        for of, registry, name in zip((east, west), registries, ("east", "west"), strict=True)
    ]
    parts = [events(of) for of in (east, west)]
    await asyncio.gather(*(engine.join(part, timeout=60.0) for engine, part in zip(engines, parts, strict=True)))
    for engine in engines:
        await engine.close()
    assert out(east, west) == {f"c{n}": 1 for n in range(EVENTS)}


# A letter: a start; a capital: with the new file. Its last start tells east what it may do.
ORDERS = {"before it starts": "ewW", "while it runs": "eewW", "and it starts again": "ewWe"}


@pytest.mark.parametrize("change", those("waits"))
@pytest.mark.parametrize("order", ORDERS)
async def test_an_old_file_calls_no_event_unmatched(tmp_path: Path, change: str, order: str) -> None:
    """East is first with each event and has the old file, by which half of them have no primary event."""
    east, west = await agreed(tmp_path, change)
    assert east.verdict_rule() != west.verdict_rule()
    known = VerdictRules()
    for each in ORDERS[order]:
        known = known.announced(each.lower(), (west if each.isupper() else east).verdict_rule())
    withheld = {
        name: "; ".join(behind(known, name, of.verdict_rule(), ())) for name, of in (("e", east), ("w", west))
    }
    assert "e has an older file than w" in withheld["e"]
    assert not withheld["w"]
    registries = FakeRegistry(), FakeRegistry()
    registries[1].model = registries[0].model
    narrow = change == "`within`"  # by the file itself; otherwise by what the old event store reads, or for how long
    late_us = 500 if narrow else 0
    first = queries(range(EVENTS) if narrow else range(0, EVENTS, 2), late_us)
    old = await written(east, registries[0], "east", first, withheld["e"])
    new = await written(west, registries[1], "west", queries(range(EVENTS), late_us), withheld["w"])
    await old.join(events(east), timeout=60.0)
    if change != "`match`":  # its sets come from an event store
        await new.join(events(west), timeout=60.0)
    for engine in (old, new):
        await engine.close()
    assert not out(east, west, kind="unmatched")
    assert change == "`match`" or out(east, west, kind="joined") == {f"c{n}": 1 for n in range(EVENTS)}


@pytest.mark.parametrize("change", those("not seen"))
async def test_another_encoding_is_not_seen(tmp_path: Path, change: str) -> None:
    """Ids and keys are bytes: ASCII ones stay the same, others become new ones."""
    east, west = await agreed(tmp_path, change)
    log = LogFile("clicks.log")

    def read(of: Site, text: str, encoding: str) -> tuple[bytes, bytes]:
        header = of.adapter.foreign_header(f"{text},{text},1000000".encode(encoding), log)
        return of.digester.digest(header.event_id or b""), header.key

    assert read(east, "c1", "utf-8") == read(west, "c1", "latin-1")
    before, after = read(east, "caf\u00e9", "utf-8"), read(west, "caf\u00e9", "latin-1")
    assert before[0] != after[0]
    assert before[1] != after[1]
