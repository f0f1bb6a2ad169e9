"""Pairs of logs whose joining fields are known: inference must find them, or refuse."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGIN = datetime(2026, 11, 20, 9, tzinfo=UTC)
Files = Mapping[str, bytes]
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LogSet:
    """``key`` (primary field, foreign field) and ``time``: the right answers; ``None`` means that only a refusal is
    right."""

    name: str
    primary: Files
    foreign: Files
    key: tuple[str, str] | None
    time: str | None = None

    def write(self, base: Path) -> tuple[Path, Path]:
        for side, files in (("primary", self.primary), ("foreign", self.foreign)):
            for name, data in files.items():
                path = base / side / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        return base / "primary", base / "foreign"


Both = tuple[Files, Files]  # primary and foreign
Make = Callable[[random.Random], Both]
MADE: list[tuple[Make, str, tuple[str, str] | None, str | None]] = []


def _set(name: str, key: tuple[str, str] | None = None, time: str | None = None) -> Callable[[Make], Make]:
    def listed(make: Make) -> Make:
        MADE.append((make, name, key, time))
        return make

    return listed


def sets(seed: int) -> list[LogSet]:
    return [LogSet(name, *make(random.Random(f"{seed} {make.__name__}")), *right) for make, name, *right in MADE]


# -- writing -------------------------------------------------------------------------------------------------------
def jsonl(rows: Rows) -> bytes:
    return b"".join(json.dumps(dict(row), separators=(",", ":")).encode() + b"\n" for row in rows)


def csv(rows: Iterable[Iterable[object]], delimiter: str = ",") -> bytes:
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows).encode()


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def ms(second: float) -> int:
    return int(at(second).timestamp() * 1000)


def iso(second: float) -> str:
    return at(second).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def hexes(rng: random.Random, count: int, digits: int = 16) -> list[str]:
    return [f"{rng.getrandbits(4 * digits):0{digits}x}" for _ in range(count)]


# -- the sets of somebody who has two logs and no configuration ----------------------------------------------------
@_set("different names", ("order", "ref"), "paid_at")
def different_names(rng: random.Random) -> Both:
    orders = hexes(rng, 400)
    return {
        "shop.log": jsonl(
            {"order": o, "customer": f"c{rng.randrange(90)}", "placed": ms(i)} for i, o in enumerate(orders)
        )
    }, {
        "pay.log": jsonl(
            {"payment": p, "ref": rng.choice(orders), "amount": rng.randrange(1, 500), "paid_at": ms(i + 9)}
            for i, p in enumerate(hexes(rng, 300))
        )
    }


@_set("nested", ("http.request.id", "ctx.trace.req"), "event.time")
def nested(rng: random.Random) -> Both:
    requests = hexes(rng, 300, 24)
    return {
            "api.log": jsonl(
                {"level": "info", "http": {"request": {"id": r, "path": f"/p/{i % 7}"}}, "meta": {"ts": iso(i)}}
                for i, r in enumerate(requests)
            )
        }, {
            "errors.log": jsonl(
                {"ctx": {"trace": {"req": rng.choice(requests)}, "host": f"h{i % 3}"},
                 "event": {"id": e, "time": iso(i * 2)}, "code": 500 + i % 4}
                for i, e in enumerate(hexes(rng, 200))
            )
        }  # fmt: skip


@_set("headerless CSV, 1:n payments", ("c1", "c2"), "c1")
def headerless_payments(rng: random.Random) -> Both:
    orders = rng.sample(range(10_000_000, 99_999_999), 500)
    payments = []
    for order in orders[:350]:
        payments += [(order, rng.randrange(1, 90), rng.choice(["card", "cash"])) for _ in range(rng.randrange(1, 4))]
    return {"orders.csv": csv((o, f"customer {rng.randrange(50)}", iso(i)) for i, o in enumerate(orders))}, {
        "payments.csv": csv((iso(i), *payment) for i, payment in enumerate(payments))
    }


@_set("access log and application's errors", ("rid", "req"), "time")
def access_log(rng: random.Random) -> Both:
    requests = hexes(rng, 300)
    lines = [
        f'10.0.0.{rng.randrange(9)} - - [{at(i):%d/%b/%Y:%H:%M:%S} +0000] "GET /item/{i % 9} HTTP/1.1" '
        f'{rng.choice([200, 500])} {rng.randrange(9999)} "-" "Mozilla/5.0 (X11; Linux)" rt=0.0{i % 90 + 10} rid={r}\n'
        for i, r in enumerate(requests)
    ]
    errors = [
        f"{at(i):%Y-%m-%d %H:%M:%S},{i % 1000:03d} ERROR [worker-{i % 4}] req={rng.choice(requests)} "
        f"- {rng.choice(['payment declined', 'no such item', 'timeout after 3 s'])}\n"
        for i in range(200)
    ]
    return {"access.log": "".join(lines).encode()}, {"app.log": "".join(errors).encode()}


# -- other shapes --------------------------------------------------------------------------------------------------
@_set("rolled and compressed", ("query_id", "query_id"), "ts")
def rolled_and_packed(rng: random.Random) -> Both:
    queries = hexes(rng, 600)
    parts = [
        jsonl({"query_id": q, "ts": ms(i)} for i, q in enumerate(queries[part : part + 200]))
        for part in (0, 200, 400)
    ]
    clicks = jsonl(
        {"click_id": c, "query_id": rng.choice(queries), "ts": ms(i)} for i, c in enumerate(hexes(rng, 200))
    )
    return {"q.log": parts[2], "q.log.1": parts[1], "q.log.2.gz": gzip.compress(parts[0])}, {
        "2026/11/clicks.log.gz": gzip.compress(clicks)
    }


@_set("CSV with semicolons and decimal commas", ("Lead", "Lead"), "Won")
def semicolons(rng: random.Random) -> Both:
    leads = [f"L-{rng.randrange(10**9)}" for _ in range(300)]
    return {"leads.csv": csv([("Lead", "Score"), *((lead, f"{n},{n % 10}") for n, lead in enumerate(leads))], ";")}, {
            "deals.csv": csv(
                [("Won", "Lead", "Sum"),
                 *((f"{at(i * 7000):%d.%m.%Y %H:%M:%S}", rng.choice(leads), f"{i},50") for i in range(200))],
                ";",
            )
        }  # fmt: skip


@_set("numbers behind the same letters", ("order", "source"), "ts")
def letters_before_numbers(rng: random.Random) -> Both:
    return {"a.log": jsonl({"order": f"ord-{i}", "ts": ms(i)} for i in range(1, 401))}, {
        "b.log": jsonl({"source": f"ord-{rng.randrange(1, 401)}", "ts": ms(i)} for i in range(200))
    }


@_set("numbers with gaps that no foreign value hits", ("number", "refers"), "at")
def numbers_with_gaps(rng: random.Random) -> Both:
    known = sorted(rng.sample(range(1, 1200), 500))
    return {"a.csv": csv([("number", "kind"), *((n, f"k{n % 5}") for n in known)])}, {
        "b.csv": csv([("at", "refers"), *((iso(i), rng.choice(known)) for i in range(400))])
    }


@_set("counters, told by names", ("id", "order_id"), "paid_at")
def counted_and_named(rng: random.Random) -> Both:
    return {"orders.csv": csv([("id", "customer"), *((i, rng.randrange(40)) for i in range(1, 501))])}, {
            "payments.csv": csv(
                [("id", "order_id", "amount", "paid_at"),
                 *((i, rng.randrange(1, 501), rng.randrange(1, 400), iso(i)) for i in range(1, 401))]
            )
        }  # fmt: skip


@_set("the key, and another field that names primary events", ("query_id", "query_id"), "ts")
def the_one_before(rng: random.Random) -> Both:
    queries = hexes(rng, 400)
    return {"q.log": jsonl({"query_id": q, "ts": ms(i)} for i, q in enumerate(queries))}, {
        "c.log": jsonl(
            {"query_id": queries[k], "previous_query": queries[k - 1], "ts": ms(i)}
            for i in range(250)
            for k in [rng.randrange(1, 400)]
        )
    }


# -- misleading names ----------------------------------------------------------------------------------------------
@_set("id on both sides is each side's own", ("id", "source"), "ts")
def ids_of_their_own(rng: random.Random) -> Both:
    first = hexes(rng, 300)
    return {"a.log": jsonl({"id": a, "ts": ms(i)} for i, a in enumerate(first))}, {
        "b.log": jsonl({"id": b, "source": rng.choice(first), "ts": ms(i)} for i, b in enumerate(hexes(rng, 200)))
    }


@_set("order_id on both sides, and ref is the key", ("order_id", "ref"), "ts")
def same_name_other_meaning(rng: random.Random) -> Both:
    orders = hexes(rng, 300)
    return {"a.log": jsonl({"order_id": o, "ts": ms(i)} for i, o in enumerate(orders))}, {
        "b.log": jsonl({"order_id": o, "ref": rng.choice(orders), "ts": ms(i)} for i, o in enumerate(hexes(rng, 200)))
    }


@_set("order_id counts each side's own records, the key has another name", ("uuid", "about"), "ts")
def counters_beside_the_key(rng: random.Random) -> Both:
    orders = hexes(rng, 500)
    return {"a.log": jsonl({"order_id": i, "uuid": o, "ts": ms(i)} for i, o in enumerate(orders))}, {
        "b.log": jsonl({"order_id": i, "about": rng.choice(orders), "ts": ms(i)} for i in range(200))
    }


@_set("order_id says one thing and values another")
def named_counters_against_values(rng: random.Random) -> Both:
    orders = hexes(rng, 500)
    return {"a.log": jsonl({"order_id": i, "uuid": o, "ts": ms(i)} for i, o in enumerate(orders))}, {
        "b.log": jsonl({"order_id": rng.randrange(500), "about": rng.choice(orders), "ts": ms(i)} for i in range(200))
    }


@_set("times that are the same on both sides", ("request", "parent"), "ts")
def same_times(rng: random.Random) -> Both:
    orders = hexes(rng, 300)
    moments = [ms(i * 3 + rng.random()) for i in range(300)]
    return {"a.log": jsonl({"ts": t, "request": o} for t, o in zip(moments, orders, strict=True))}, {
        "b.log": jsonl({"ts": t, "parent": o} for t, o in zip(moments[::2], orders[::2], strict=True))
    }


@_set("order_id names orders, and the primary records are items of orders")
def items_of_orders(rng: random.Random) -> Both:
    return {"order_items.csv": csv([("id", "price"), *((i, rng.randrange(90)) for i in range(1, 801))])}, {
        "payments.csv": csv([("order_id", "paid_at"), *((rng.randrange(1, 400), iso(i)) for i in range(300))])
    }


@_set("line_no on both sides counts lines")
def lines_of_files(rng: random.Random) -> Both:
    return {"a.log": jsonl({"line_no": i, "ts": ms(i)} for i in range(1, 900))}, {
        "b.log": jsonl({"line_no": rng.randrange(1, 900), "ts": ms(i)} for i in range(300))
    }


@_set("local times without their zone")
def zones(rng: random.Random) -> Both:
    queries = hexes(rng, 300)
    return {"a.log": jsonl({"query_id": q, "ts": ms(i)} for i, q in enumerate(queries))}, {
        "b.log": jsonl({"query_id": queries[i], "time": f"{at(i + 7205):%Y-%m-%d %H:%M:%S}"} for i in range(250))
    }


@_set("times without zone that are UTC", ("query_id", "query_id"), "time")
def close_times(rng: random.Random) -> Both:
    queries = hexes(rng, 300)
    return {"a.log": jsonl({"query_id": q, "ts": ms(i)} for i, q in enumerate(queries))}, {
        "b.log": jsonl(
            {"query_id": queries[i], "time": f"{at(i + rng.randrange(3000)):%Y-%m-%d %H:%M:%S}"} for i in range(250)
        )
    }


# -- nothing that could be told ------------------------------------------------------------------------------------
@_set("counters that meet by chance")
def counters(rng: random.Random) -> Both:
    return {"a.log": jsonl({"number": i, "size": rng.randrange(10**6), "ts": ms(i)} for i in range(1, 1001))}, {
        "b.log": jsonl({"attempt": rng.randrange(1, 900), "ts": ms(i)} for i in range(300))
    }


@_set("id counts on both sides")
def ids_that_count(rng: random.Random) -> Both:
    return {"a.log": jsonl({"id": i, "ts": ms(i)} for i in range(1, 1001))}, {
        "b.log": jsonl({"id": i, "user": rng.randrange(1, 400), "ts": ms(i)} for i in range(1, 401))
    }


@_set("headerless CSV of counters")
def counters_without_names(rng: random.Random) -> Both:
    return {"a.csv": csv((i, rng.randrange(50), iso(i)) for i in range(1, 801))}, {
        "b.csv": csv((rng.randrange(1, 801), rng.randrange(1, 99), iso(i)) for i in range(500))
    }


@_set("counters of both sides, rolled at the same places")
def counters_in_step(rng: random.Random) -> Both:
    def files(step: int, name: str) -> Files:
        return {
            f"{name}.{part}.log": jsonl(
                {f"{name}_no": 10_000 * part + step * i, "ts": ms(100 * part + i)} for i in range(300)
            )
            for part in range(8)
        }

    return files(1, "row"), files(3, "line")


@_set("counters in steps of ten")
def tens(rng: random.Random) -> Both:
    return {"a.log": jsonl({"a_no": 10 * i, "ts": ms(i)} for i in range(1, 500))}, {
        "b.log": jsonl({"b_no": 10 * rng.randrange(1, 500), "ts": ms(i)} for i in range(300))
    }


@_set("four values of 304 in common")
def a_few_in_common(rng: random.Random) -> Both:
    known = hexes(rng, 500)
    others = [*known[:4], *hexes(rng, 300)]
    return {"a.log": jsonl({"token": t, "ts": ms(i)} for i, t in enumerate(known))}, {
        "b.log": jsonl({"token": t, "ts": ms(i)} for i, t in enumerate(others))
    }


@_set("the same name and no value in common")
def nothing_in_common(rng: random.Random) -> Both:
    return {"a.log": jsonl({"order_id": t, "ts": ms(i)} for i, t in enumerate(hexes(rng, 300)))}, {
        "b.log": jsonl({"order_id": t, "ts": ms(i)} for i, t in enumerate(hexes(rng, 300)))
    }


@_set("two keys that are as good")
def twins(rng: random.Random) -> Both:
    one, two = hexes(rng, 300), hexes(rng, 300)
    pairs = list(zip(one, two, strict=True))
    return {"a.log": jsonl({"query_id": a, "visit_id": b, "ts": ms(i)} for i, (a, b) in enumerate(pairs))}, {
        "b.log": jsonl(
            {"query_id": a, "visit_id": b, "ts": ms(i)} for i, (a, b) in enumerate(rng.choices(pairs, k=200))
        )
    }


@_set("two foreign fields that name different primary events")
def two_that_differ(rng: random.Random) -> Both:
    known = hexes(rng, 300)
    return {"a.log": jsonl({"account": a, "ts": ms(i)} for i, a in enumerate(known))}, {
        "b.log": jsonl({"sender": rng.choice(known), "receiver": rng.choice(known), "ts": ms(i)} for i in range(200))
    }


@_set("sides swapped")
def swapped(rng: random.Random) -> Both:
    queries = hexes(rng, 200)
    return {"clicks.log": jsonl({"query_id": rng.choice(queries), "ts": ms(i)} for i in range(300))}, {
        "queries.log": jsonl({"query_id": q, "ts": ms(i)} for i, q in enumerate(queries))
    }


@_set("foreign records that name foreign records")
def its_own_records(rng: random.Random) -> Both:
    return {"posts.log": jsonl({"post": f"msg-{i}", "ts": ms(i)} for i in range(500))}, {
        "answers.log": jsonl(
            {"answer": f"msg-{i}", "parent": f"msg-{rng.randrange(max(1, i))}", "ts": ms(i)} for i in range(300)
        )
    }


@_set("created_at and updated_at")
def several_times(rng: random.Random) -> Both:
    queries = hexes(rng, 200)
    return {"a.log": jsonl({"query_id": q} for q in queries)}, {
        "b.log": jsonl(
            {"query_id": rng.choice(queries), "created_at": ms(i), "updated_at": ms(i + 60)} for i in range(200)
        )
    }


@_set("days that may be months")
def day_or_month(rng: random.Random) -> Both:
    queries = hexes(rng, 200)
    return {"a.csv": csv([("query_id", "n"), *((q, i) for i, q in enumerate(queries))])}, {
            "b.csv": csv(
                [("query_id", "time"),
                 *((rng.choice(queries), f"{1 + i % 9:02d}/{1 + i % 12:02d}/2026 10:00:00") for i in range(200))]
            )
        }  # fmt: skip


@_set("CSV of words alone")
def words_without_header(rng: random.Random) -> Both:
    words = ["red", "green", "blue", "black", "white"]
    return {"a.csv": csv((a, b) for a in words for b in words)}, {"b.csv": csv((a, b) for a in words for b in words)}
