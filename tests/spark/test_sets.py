"""Joins with several primary events of a key: planted defects are found, and a backfill writes whole sets."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from photon.adapters.contract import Adapter, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.key_lists import keys_named
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records
from photon.config.clock import NEVER_NS
from photon.config.loader import load
from photon.config.settings import Duration, Join, Limits, Within
from photon.eventstore.api import SET_MAX, EventLookUps, LookUpCode
from photon.idregistry.api import Digester, Kind
from photon.joiner.verdicts import Judge, envelope_lines
from photon.spark import logs, outputs, schemas
from photon.spark.classes import Class
from photon.spark.primary_sets import versions
from photon.spark.shipped_adapter import adapter_spec
from photon.spark.sources import JoinSource, pipeline_sources
from photon.spark.verify.job import VerifyInputs, VerifyQuestion, verify
from photon.spark.verify.reading import VerifyTask
from photon.spark.verify.run import run
from tests.integration.commands import photon
from tests.spark.backfill_site import in_thread, make_site, published
from tests.spark.small_deployment import AT_NS, HOUR_NS, KEY, SITES, Deployment, Entry, Written, event_of
from tests.spark.test_backfill import run_here, verified
from tests.spark.test_verify_report import MADE_AT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = 1_760_000_000
ORDERS = 150
SHOP = {"as": "number"}
# Keys of two fields, each written in several ways.
SIDES = {
    "primary": {
        "format": "csv", "columns": ["shop", "order", "at", "amount"],
        "key": [{"field": "shop", **SHOP}, {"field": "order", "case": "fold", "trim": True}],
        "time": {"field": "at", "unit": "s"},
    },
    "foreign": {
        "format": "jsonl", "id": "id", "time": {"field": "at", "unit": "s"},
        "key": [{"field": "shop.number", **SHOP}, {"field": "order", "case": "fold", "trim": True}],
    },
}  # fmt: skip
WITHIN = Within(before=Duration(100), after=Duration(300))
LISTS = {
    **SIDES["foreign"],
    "key": [{"field": "shop.number", **SHOP}, {"field": "orders.no", "each": True, "case": "fold"}],
}
JOINS = {
    "lists": Join(primary=SIDES["primary"], foreign=LISTS, match="all", within=WITHIN, unmatched_after=Duration(600)),
    "all": Join(**SIDES, match="all", within=WITHIN, unmatched_after=Duration(600)),  # type: ignore[arg-type]
    "latest": Join(**SIDES, match="latest", within=Within(before=Duration(300)), unmatched_after=Duration(600)),  # type: ignore[arg-type]
    "first": Join(**SIDES, within=WITHIN),  # type: ignore[arg-type]
}
SLICED = 50  # events that share a token


@dataclass
class Orders(Deployment):
    """Orders with up to five payments each, in the logs of two datacentres, and a deployment's output for them."""

    kind: str = "all"
    # Site -> key -> its primary records in file order.
    primaries: dict[str, dict[bytes, list[PrimaryRecord]]] = field(default_factory=dict)
    events: dict[str, dict[str, ForeignEvent]] = field(default_factory=dict)  # site -> event id -> the record

    @property
    def most(self) -> int:
        """Payments of an order: the first of several need not be the same in both datacentres."""
        return 1 if self.kind == "first" else 5

    @property
    def second(self) -> str:
        """Another order of the event, or its order in another spelling."""
        return "new%d " if self.kind == "lists" else "or%d "

    @property
    def join(self) -> Join:
        return JOINS[self.kind]

    def adapter(self) -> Adapter:
        return adapter_of_join(self.join, "clicks", self.root)

    def source(self) -> JoinSource:
        return JoinSource(join="clicks", adapter=adapter_spec("clicks", self.join, self.root, Limits()), key=KEY)

    def write_logs(self, rnd: random.Random) -> None:
        for site in SITES:
            payments, orders = [], []
            for n in range(ORDERS):
                shop = rnd.choice([f"{n % 7}", f"0{n % 7}", f"{n % 7}.0"])
                order = {"id": f"e{n}", "shop": {"number": n % 7}, "order": rnd.choice([f"Or{n}", f" oR{n}"]),
                         "orders": [{"no": name} for name in (f"New{n}", "none", f"oR{n}")],
                         "at": EPOCH + n}  # fmt: skip
                orders.append(json.dumps(order, separators=(",", ":")) + "\n")
                payments += (
                    f"{shop},{rnd.choice([f'OR{n}', self.second % n])},{EPOCH + n + at},{at}\n"
                    for at in random.Random(n).sample(range(-400, 400), min(n % 6, self.most))
                )
            for side, lines, names in (("queries", payments, ("z.csv.1", "a.csv")), ("clicks", orders, ("o.log",))):
                rnd.shuffle(lines)
                (self.root / site / side).mkdir(parents=True)
                for number, name in enumerate(names):
                    part = lines[number :: len(names)]
                    (self.root / site / side / name).write_text("".join(part))

    def read_logs(self) -> None:
        adapter, digester = self.adapter(), Digester(KEY, "clicks")
        for site in SITES:
            has: dict[bytes, list[PrimaryRecord]] = defaultdict(list)
            for file, offset, record in _records(self.root / site / "queries", ("a.csv", "z.csv.1")):
                has[adapter.primary_key(record, file)].append(PrimaryRecord(record, file, offset))
            self.primaries[site], self.events[site] = has, {}
            for file, offset, record in _records(self.root / site / "clicks", ("o.log",)):
                header = adapter.foreign_header(record, file)
                assert header.event_id is not None
                event = ForeignEvent(header.event_id, digester.digest(header.event_id), header.event_time_ns,
                                     header.key, record, file, offset, NEVER_NS)  # fmt: skip
                self.events[site][header.event_id.decode()] = event

    def named(self, site: str, event: ForeignEvent) -> list[PrimaryRecord]:
        keys = keys_named(self.adapter(), event.key)
        return [each for key in keys for each in self.primaries[site].get(key, ())]

    def write(self, site: str, names: list[str], token: int) -> Iterator[tuple[str, Written]]:
        """Event ids and their records, by the joiner's own code."""
        events = [self.events[site][name] for name in names]
        has = [self.named(site, event) for event in events]
        whole = self.join.match != "first"
        has = [each if whole else each[:1] for each in has]
        codes = bytes(LookUpCode.FOUND if each else LookUpCode.ABSENT for each in has)
        found = EventLookUps(codes, Records.of([one for each in has for one in each]), {},
                             np.array([len(each) for each in has if each], np.uint32))  # fmt: skip
        decided = Judge(self.adapter(), check_payloads=True).decide(Events.of(events), found, frozenset())
        lines = envelope_lines(Envelope())(Events.of(events), decided, token, AT_NS)
        for at, line in zip(decided.order().tolist(), lines, strict=True):
            yield names[at], Written(site, Kind(decided.kinds[at]).name.lower(), line)


def _records(directory: Path, names: tuple[str, ...]) -> Iterator[tuple[LogFile, int, bytes]]:
    for name in names:
        offset = 0
        for line in (directory / name).read_bytes().splitlines(keepends=True):
            yield LogFile(name), offset, line.rstrip(b"\n")
            offset += len(line)


def make(root: Path, kind: str, seed: int) -> Orders:
    rnd = random.Random(seed)
    made = Orders(root, kind=kind)
    made.write_logs(rnd)
    made.read_logs()
    names = [f"e{n}" for n in range(ORDERS)]
    rnd.shuffle(names)
    for batch, start in enumerate(range(0, ORDERS, SLICED), 1):
        site, token = SITES[batch % 2], batch << 40
        for name, written in made.write(site, names[start : start + SLICED], token):
            event = made.events[site][name]
            made.lines.append(written)
            made.registry[name] = Entry(event.digest, event.event_time_ns, f"{token:016x}", written.kind, site)
    return made


# -- defects: each takes an event's records, and says what must be found ------------------------------------------
Plant = Callable[[Orders, Written, str], list[Class]]


def _said(at: Written) -> list[dict[str, Any]]:
    return [json.loads(line) for line in at.line.splitlines()]


def _say(at: Written, records: list[dict[str, Any]], *, numbered: bool = False) -> None:
    for number, record in enumerate(records, 1):
        if numbered:
            record |= {"pair": number, "pairs": len(records)}
    at.line = b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in records)


def lost(made: Orders, at: Written, event: str) -> list[Class]:
    made.lines.remove(at)
    return [Class.LOST_CLEARED]


def lost_with_a_slot(made: Orders, at: Written, event: str) -> list[Class]:
    made.lines.remove(at)
    made.registry[event] = replace(made.registry[event], state="owned", retired=True)
    return [Class.LOST_RETIRED]


def doubled(made: Orders, at: Written, event: str) -> list[Class]:
    at.line += at.line
    return [Class.DUPLICATED]


def doubled_across(made: Orders, at: Written, event: str) -> list[Class]:
    [(_, other)] = made.write(SITES[1 - SITES.index(at.site)], [event], 77)
    made.lines.append(other)
    return [Class.DUPLICATED_ACROSS]


def unregistered(made: Orders, at: Written, event: str) -> list[Class]:
    del made.registry[event]
    return [Class.REGISTRY_MISSING]


def called_unmatched(made: Orders, at: Written, event: str) -> list[Class]:
    record = made.events[at.site][event].record.decode()
    kept = {k: v for k, v in _said(at)[0].items() if k in ("event_id", "key", "event_time_ns", "source", "token")}
    at.kind = "unmatched"
    _say(at, [kept | {"reason": "no primary event has this key", "record": record}])
    made.registry[event] = replace(made.registry[event], kind="unmatched")
    return [Class.PRIMARY_EXISTS]


def another_primary(made: Orders, at: Written, event: str) -> list[Class]:
    """A primary with the key that is not among the chosen; otherwise one with another key."""
    said = _said(at)
    chosen = {(each["primary_source"]["file"], each["primary_source"]["offset"]) for each in said}
    of_key = made.named(at.site, made.events[at.site][event])
    others = [each for each in of_key if (each.file.path, each.offset) not in chosen]
    if not others:
        named = keys_named(made.adapter(), said[0]["key"].encode())
        others = next(each for key, each in made.primaries[at.site].items() if key not in named)
    shop, order, time, amount = others[0].record.decode().split(",")
    said[-1]["primary"] = {"shop": shop, "order": order, "at": time, "amount": amount}
    said[-1]["primary_source"] = {"file": others[0].file.path, "offset": others[0].offset}
    _say(at, said)
    return [Class.WRONGLY_JOINED]


def invented(made: Orders, at: Written, event: str) -> list[Class]:
    made.lines.append(replace(at, line=at.line.replace(f'"{event}"'.encode(), f'"{event}x"'.encode())))
    return [Class.INVENTED]


EACH: list[Plant] = [
    lost, lost_with_a_slot, doubled, doubled_across, unregistered, called_unmatched, another_primary, invented
]  # fmt: skip


def without_a_pair(made: Orders, at: Written, event: str) -> list[Class]:
    said = _said(at)
    _say(at, said[:1] + said[2:])
    return [Class.WRONGLY_JOINED]


def without_a_pair_that_it_counts(made: Orders, at: Written, event: str) -> list[Class]:
    said = _said(at)
    _say(at, said[:1] + said[2:], numbered=True)
    return [Class.WRONGLY_JOINED]


def with_a_pair_twice(made: Orders, at: Written, event: str) -> list[Class]:
    said = _said(at)
    _say(at, [*said, said[0]])
    return [Class.DUPLICATED]


def with_a_pair_twice_in_place_of_another(made: Orders, at: Written, event: str) -> list[Class]:
    said = _said(at)
    _say(at, [said[0], *said[:-1]])
    return [Class.DUPLICATED, Class.WRONGLY_JOINED]


def with_a_pair_too_many(made: Orders, at: Written, event: str) -> list[Class]:
    said = _said(at)
    other = next(each for each in made.lines if each.site == at.site and each.kind == "joined" and each is not at)
    primary = {name: _said(other)[0][name] for name in ("primary", "primary_source")}
    _say(at, [*said, said[0] | primary], numbered=True)
    return [Class.WRONGLY_JOINED]


def with_half_a_line(made: Orders, at: Written, event: str) -> list[Class]:
    first, rest = at.line.split(b"\n", 1)
    at.line = first[:50] + b"\n" + rest
    made.expected[str(Class.TORN), ""] += 1
    return [Class.WRONGLY_JOINED]


def with_another_token(made: Orders, at: Written, event: str) -> list[Class]:
    said = _said(at)
    said[-1]["token"] = "00000000000000ff"
    _say(at, said)
    return [Class.REGISTRY_DIFFERS]


OF_SETS: list[Plant] = [
    without_a_pair, without_a_pair_that_it_counts, with_a_pair_twice, with_a_pair_twice_in_place_of_another,
    with_a_pair_too_many, with_another_token,
]  # fmt: skip


def called_joined(made: Orders, rnd: random.Random) -> None:
    """An event without a primary event."""
    at = rnd.choice([each for each in made.lines if each.kind == "unmatched"])
    other = rnd.choice([each for each in made.joined() if each.site == at.site])
    event, said = event_of(at), _said(at)[0]
    said.pop("reason")
    joined = _said(other)[0] | said | {"foreign": json.loads(said.pop("record"))}
    joined.pop("record", None)
    at.kind = "joined"
    _say(at, [joined], numbered=made.join.match == "all")
    made.registry[event] = replace(made.registry[event], kind="joined")
    made.expected[str(Class.SHOULD_BE_UNMATCHED), event] += 1


def plant(made: Orders, rnd: random.Random) -> int:
    """Two defects of every class, never two in one event; returns the number of events with one."""
    called_joined(made, rnd)
    named = {event for _, event in made.expected}
    joined = [(event_of_first(each), each) for each in made.joined() if event_of_first(each) not in named]
    several = [each for each in joined if each[1].line.count(b"\n") > 2]
    plants = [(each, joined) for each in EACH * 2]
    if made.join.match == "all":
        plants = [(each, several) for each in (*OF_SETS * 2, with_half_a_line, with_half_a_line)] + plants
    for each, among in plants:
        event, at = rnd.choice(among)
        for some in (joined, several):
            if (event, at) in some:
                some.remove((event, at))
        name = f"{event}x" if each is invented else event
        made.expected.update((str(kind), name) for kind in each(made, at, event))
    return len(plants) + 1


def event_of_first(at: Written) -> str:
    return str(_said(at)[0]["event_id"])


def verdicts(made: Orders) -> Counter[str]:
    """Events by kind, as a ledger counts them."""
    found = Counter[str]()
    for each in made.lines:
        for line in each.line.splitlines():
            with suppress(json.JSONDecodeError):
                said = json.loads(line)
                found[each.kind] += said.get("pair") == said.get("pairs")
    return found


@pytest.mark.parametrize("kind", JOINS)
def test_planted_defects_are_found_and_nothing_else(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    made = make(tmp_path, kind, 3)
    bad = plant(made, random.Random(4))
    made.write_outputs()
    source = made.source()
    inputs = VerifyInputs(
        logs.foreign(spark, source, made.logs("clicks")),
        partial(logs.primary, spark, source, made.logs("queries")),
        outputs.outputs(spark, made.outputs(), source),
        spark.createDataFrame([entry.row() for entry in made.registry.values()], schemas.REGISTRY),
    )
    hours = [entry.time_ns // HOUR_NS for entry in made.registry.values()]
    found = verify(inputs, VerifyQuestion(min(hours), max(hours) + 1, SITES, partial(made.adapter)))
    rows = found.problems().collect()
    reported = Counter((row["class"], (row["event_id"] or b"").decode()) for row in rows)
    assert reported == made.expected, [row["evidence"] for row in rows]
    right = sum(each.count for each in found.counts if each.kind is Class.CORRECT)
    assert right == ORDERS - bad + 2, "each event whose id was changed in a copy of its record is right"
    there = Counter[str]()
    for cell in found.totals.cells.values():
        there.update(cell.records)
    found.close()
    assert there == verdicts(made), "a set counts once"


EACH_KEY = 'key = { field = "query_id", each = true }'


# -- backfill ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lists", [False, True])
async def test_a_backfill_writes_whole_sets_once(spark: SparkSession, tmp_path: Path, *, lists: bool) -> None:
    site, output = make_site(tmp_path / "site", 300), tmp_path / "out"
    text = site.file.read_text()
    site.file.write_text(text.replace("[join.clicks.primary]", '[join.clicks]\nmatch = "all"\n'
                                      'unmatched_after = "10m"\n[join.clicks.primary]', 1))  # fmt: skip
    if lists:
        foreign = site.directory / "clicks"
        for log in foreign.iterdir():
            packed = log.suffix == ".gz"
            data = gzip.decompress(log.read_bytes()) if packed else log.read_bytes()
            data = re.sub(rb'"query_id": ("[^"]*")', rb'"query_id": ["none", \1]', data)
            log.write_bytes(gzip.compress(data) if packed else data)
        before, sep, after = site.file.read_text().partition("[join.clicks.foreign]")
        site.file.write_text(before + sep + after.replace('key = "query_id"', EACH_KEY, 1))
    places = defaultdict[str, list[tuple[str, int]]](list)
    for file, offset, record in _records(site.directory / "queries", ("a.log", "b.log")):
        places[json.loads(record)["query_id"]].append((file.path, offset))
    assert Counter(map(len, places.values())).keys() == {1, 2}
    async with site.running():
        done = await in_thread(lambda: run_here(site, output, unmatched=True))
        found = defaultdict[str, list[Any]](list)
        for record in published(output)["joined"]:
            place = record["primary_source"]["file"], record["primary_source"]["offset"]
            pair, pairs, key = record["pair"], record["pairs"], record["key"].removeprefix("none|")
            assert (place, pairs) == (places[key][pair - 1], len(places[key]))
            found[record["event_id"]].append((pair, key))
        assert found.keys() == site.pairs.keys()
        assert all(
            [pair for pair, _ in each] == list(range(1, len(places[each[0][1]]) + 1)) for each in found.values()
        )
        counts = done.result.counts
        assert (counts["joined"], counts["unmatched"]) == (len(site.pairs), len(site.without))
        assert done.cleared == len(site.pairs) + len(site.without)
        assert await site.owned(done.slot) == 0
        assert await verified(site, tmp_path / "report") == {"correct": len(site.pairs) + len(site.without)}


# -- what photon join writes ---------------------------------------------------------------------------------------
CHAIN = """
[join.pay]
match = "all"
within = { before = "1h", after = "5m" }
unmatched_after = "10m"
[join.pay.primary]
format = "csv"
key = "order"
time = { field = "at", unit = "s" }
[join.pay.foreign]
format = "csv"
key = "order"
id = "order"
time = { field = "at", unit = "s" }

[join.named.primary]
format = "csv"
key = "customer"
[join.named.foreign]
join = "pay"
key = "foreign.customer"
id = "primary.payment"
"""
PIPELINE = """
[datacentre.{join}]
join = "{join}"
{logs}
output = "{join}.out"
state = "{join}.out/.photon"
address = "127.0.0.1:{port}1"
"""


def test_pairs_of_a_set_are_events_of_the_next_join(spark: SparkSession, tmp_path: Path) -> None:
    """The second join attaches to each pair the customer; ``test_chain`` verifies each stage of a deployment."""
    texts = {
        "payments": "payment,order,at\n" + "".join(f"p{n},o{n % 40},{EPOCH + n}\n" for n in range(100)),
        "orders": "order,customer,at\n" + "".join(f"o{n},c{n % 9},{EPOCH + n}\n" for n in range(50)),
        "customers": "customer,name\n" + "".join(f"c{n},Ann {n}\n" for n in range(8)),
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(text)
    file = tmp_path / "photon.toml"
    file.write_text(CHAIN)
    for join, primary, foreign in (("pay", "payments", "orders"), ("named", "customers", "pay.out")):
        sides = (
            "--primary",
            tmp_path / primary,
            "--foreign",
            tmp_path / foreign,
            "--output",
            tmp_path / f"{join}.out",
        )
        done = photon("join", "--config", file, "--join", join, *sides, "--once", "--quiet")
        assert done.code == 0, done.err
    places = {"pay": 'primary = "payments"\nforeign = "orders"', "named": 'primary = "customers"'}
    text = "".join(PIPELINE.format(join=join, logs=logs, port=len(join)) for join, logs in places.items())
    file.write_text('key_file = "named.out/.photon/key"\n' + CHAIN + text)
    sources = pipeline_sources(load(file, environment={}), tmp_path, "named")
    task = VerifyTask(sources, "f" * 32, EPOCH // 3600, EPOCH // 3600 + 1, MADE_AT)
    found = run(spark, task, tmp_path / "report", print).verdict.counts
    assert {kind: count for kind, count in found.items() if count} == {"correct": 100}


def test_versions_as_of_a_time(spark: SparkSession) -> None:
    """As FileMap.versions: the same questions as in its contract."""
    primary = "key binary, name string, identity string, offset bigint, log string, header binary, record binary"
    rows = [
        (b"EUR", "r.csv", "a", 20 * n, "r.csv", None, b"1,EUR,%d,0" % (100 * n))
        for n in random.Random(3).sample(range(3000), 3000)
    ]
    rows += [(b"GBP", name, "b", n, name, None, b"1,GBP,7,0") for name in ("r.csv", "s.csv") for n in (0, 9)]
    rows += [
        (b"GBP", "a.csv", "c", 5, "a.csv", None, b"1,GBP,when,0"),
        (b"GBP", "a.csv", "c", 1, "a.csv", None, b"1,GBP,6,0"),
    ]
    rows += [(b"JPY", "r.csv", "a", n, "r.csv", None, b"1,JPY,1,0") for n in range(SET_MAX + 1)]
    second = 10**9
    asked = [
        (1, b"EUR", 150_050 * second), (2, b"EUR", 99 * second), (1, b"EUR", -1), (1, b"no", 5),
        (3, b"GBP", 7 * second), (3, b"GBP", 6 * second), (4, b"JPY", 2 * second),
    ]  # fmt: skip
    found = versions(
        spark.createDataFrame(rows, primary),
        spark.createDataFrame(asked, "part int, key binary, event_time_ns bigint"),
        ["key"],
        ("name", "identity", "offset"),
        ("record", "log", "header"),
        lambda: adapter_of_join(JOINS["latest"], "x", Path()),
    ).collect()
    places = {
        (row["part"], bytes(row["key"]), row["event_time_ns"]): [
            (each["name"], each["offset"]) for each in row["primaries"]
        ]
        for row in found
    }
    assert len(places) == len(found) == len(asked)
    one, two, early, none, tied, older, many = (places[each] for each in asked)
    assert (one, two, none, older) == ([("r.csv", 30_000)], [("r.csv", 0)], [], [("a.csv", 1), ("a.csv", 5)])
    assert [name for name, _ in early] == ["r.csv"], "one that is newer"
    assert tied == [("a.csv", 5), ("s.csv", 9)]
    assert len(many) == SET_MAX + 1, "too many of one time, as in the event store"
