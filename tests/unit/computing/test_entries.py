"""State by entry: maps and lists of a key, as a dict and a list would be, through failures and starts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.computing import Computation, Context, Record, Topology
from photon.computing.engine import Engine
from photon.computing.intervals import Interval, Intervals, even
from photon.computing.moving import split
from photon.computing.store import Store, in_file, in_memory
from photon.computing.testkit import run
from photon.computing.wire import Input


class Cart(msgspec.Struct):
    goods: list[str]
    cents: int = 0


class Does(Computation):
    """Does what its records say to its map and its list, and to a dict and a list next to them."""

    def __init__(self) -> None:
        self.models: dict[str, tuple[dict[Any, Any], list[Any]]] = {}
        self.mended = False

    def process_record(self, ctx: Context, record: Record) -> None:
        entries, told = ctx.map_of("m"), ctx.list_of("l")
        known, listed = self.models.get(ctx.key, ({}, []))
        known, listed = dict(known), list(listed)
        for what, name, value in record.value["do"]:
            if what == "set":
                entries[name] = known[name] = value
            elif what == "del":
                assert entries.pop(name, None) == known.pop(name, None)
            elif what == "append":
                told.append(value)
                listed.append(value)
            elif what == "pop" and listed:
                assert told.pop_first() == listed.pop(0)
            elif what == "change" and listed:
                told[-1] = listed[-1] = value
            assert (name in entries, entries.get(name)) == (name in known, known.get(name))
        assert dict(entries.items()) == known
        assert (len(entries), len(told)) == (len(known), len(listed))
        assert list(told) == listed == told[:]
        if record.value["fails"] and not self.mended:
            raise ValueError("on purpose")
        self.models[ctx.key] = known, listed


def _drawn(rng: random.Random, n: int) -> dict[str, Any]:
    what, names = ["set", "set", "del", "append", "pop", "change"], [1, "1", "x:/", -5, ""]
    return {
        "key": rng.choice(["a", "a\0", "b"]),
        "do": [[rng.choice(what), rng.choice(names), n] for _ in range(rng.randrange(4))],
        "fails": rng.random() < 0.1,
    }


@pytest.mark.parametrize("seed", range(8))
def test_entries_are_as_a_dict_and_a_list_through_failures_and_starts(tmp_path: Path, seed: int) -> None:
    rng, does, topology = random.Random(seed), Does(), Topology("t")
    topology.add(does, {topology.source("in"): "key"})
    records = [Record(_drawn(rng, n), n) for n in range(150)]
    store = in_file(tmp_path / "store.db", even(1).all[0])
    engine, committed, failed = Engine(topology, store, even(1)), (dict(does.models), 0), 0
    n = 0
    while n < len(records):
        engine.take(Input("in", b"%d" % n if n else None, b"%d" % (n + 1), [records[n]]), 0)
        n += 1
        if faults := engine.faults():
            assert "on purpose" in faults[0].line, faults
            failed += 1
            does.mended = True
            engine.retry(0)
            does.mended = False
            assert not engine.faults()
        if rng.random() < 0.4:
            engine.commit()
            committed = dict(does.models), n
        elif rng.random() < 0.2:  # killed: what was not committed is done again
            store.close()
            store = in_file(tmp_path / "store.db")
            engine, does.models, n = Engine(topology, store, even(1)), dict(committed[0]), committed[1]
    assert failed
    store.close()


class Carts(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        bought = record.to(Bought)
        carts = ctx.map_of("carts", Cart)
        cart = carts.get(bought.shop) or Cart([])
        cart.goods.append(bought.good)
        cart.cents += bought.cents
        carts[bought.shop] = cart
        ctx.produce("carts", [cart.goods, cart.cents])


class Bought(msgspec.Struct):
    shop: int
    good: str
    cents: int


def test_structs_are_types_of_records_and_entries() -> None:
    bought = [Record({"key": "a", "shop": 1, "good": good, "cents": 5}, 1) for good in ("tea", "ink")]
    assert [each.value for each in run(Carts(), bought, outputs=["carts"])["carts"]] == [
        [["tea"], 5],
        [["tea", "ink"], 10],
    ]
    (fault,) = run(
        Carts(), [Record({"key": "a", "shop": "x", "good": "tea", "cents": 5}, 1)], outputs=["carts"]
    ).faults
    assert "Expected `int`, got `str` - at `$.shop`" in fault.line


def test_entries_move_with_their_key() -> None:
    does, topology = Does(), Topology("t")
    topology.add(does, {topology.source("in"): "key"})
    stores = {"i0": in_memory(even(1).all[0])}
    engine = Engine(topology, stores["i0"], even(1))
    keys = [f"k{n}" for n in range(10)]
    for n, key in enumerate(keys):
        value = {"key": key, "do": [["set", 1, n], ["append", "", n]], "fails": False}
        engine.take(Input("in", b"%d" % n if n else None, b"%d" % (n + 1), [Record(value, n)]), 0)
    engine.commit()

    def opened(interval: Interval) -> Store:
        return stores.setdefault(interval.id, in_memory(interval))

    halves = split(stores["i0"], 1 << 31, ("one", "two"), opened)
    for half in halves:
        engine = Engine(topology, stores[half.id], Intervals(list(halves)))
        more = [Record({"key": key, "do": [["append", "", "more"]], "fails": False}, 99) for key in keys]
        engine.take(Input("in", engine.position("in"), b"end", more), 0)
        assert not engine.faults()
        assert engine.counts().records in range(1, 10)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda ctx: ctx.map_of("a/b"), "must not be empty or contain / or :"),
        (lambda ctx: ctx.map_of("m").update({"a\0": 1}), "no zero byte"),
        (lambda ctx: ctx.map_of("m").update({"a" * 501: 1}), "at most 500 bytes"),
        (lambda ctx: ctx.map_of("m").update({1.5: 1}), "must be an int, or a str"),
        (lambda ctx: ctx.map_of("m").update({1: (1, 2)}), "has a tuple, which would be read back as another type"),
        (lambda ctx: ctx.list_of("l").append("x" * (2 << 20)), "bytes, more than 1048576"),
        (lambda ctx: ctx.list_of("l")[0], "IndexError"),
        (lambda ctx: ctx.map_of("m").pop(1), "KeyError"),
    ],
)
def test_what_cannot_be_kept_is_refused(wrong: Any, why: str) -> None:
    class Wrong(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            wrong(ctx)

    (fault,) = run(Wrong(), [Record({"key": "a"}, 1)], outputs=[]).faults
    assert why in fault.line
