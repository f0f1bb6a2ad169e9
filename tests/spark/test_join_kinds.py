"""Kinds of join on Spark, each a datacentre of one deployment: exact pairs by a plain reference, over a kill."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.deployments import addresses, replica
from tests.integration.commands import photon
from tests.spark.conftest import require_spark

EPOCH, ORDERS = 1_760_000_000, 120
BEFORE_S, AFTER_S = 10, 5
SETTLED_S = 240.0
SIDES = """
[join.NAME.primary]
format = "csv"
columns = ["order", "at", "amount"]
key = "order"
time = { field = "at", unit = "s" }
[join.NAME.foreign]
format = "jsonl"
key = "order"
id = "id"
time = { field = "at", unit = "s" }
"""
JOINS = {
    "sets": f'match = "all"\nwithin = {{ before = "{BEFORE_S}s", after = "{AFTER_S}s" }}',
    "latest": f'match = "latest"\nwithin = {{ before = "{BEFORE_S}s" }}',
    "left": 'unmatched = "inline"',
}
BILLS = """
[join.bills]
unmatched_after = "6s"
primary = { format = "csv", columns = ["shop", "name"], key = "shop" }
foreign = { join = "left", key = "foreign.shop" }
"""


def make_site(directory: Path) -> Path:
    free = addresses(9)
    text = 'key_file = "key"\n[clock]\nuncertainty = "1s"\n[output]\nroll_age = "2s"\ncompress = "gzip"\n'
    for name, match in JOINS.items():
        text += f'[join.{name}]\n{match}\nunmatched_after = "6s"\nprimary_max_delay = "1s"\n'
        text += SIDES.replace("NAME", name)
    text += BILLS + replica(next(free))
    for name in (*JOINS, "bills"):
        logs = f'primary = "{"shops" if name == "bills" else "payments"}"\n'
        logs += "" if name == "bills" else 'foreign = "orders"\n'
        text += f'[datacentre.{name}]\njoin = "{name}"\npipeline = "spark"\noutput = "{name}/output"\n'
        text += f'state = "{name}/state"\naddress = "{next(free)}"\nstatus = ""\n'
        text += f'apart.spark = "{next(free)}"\n{logs}'
    for name in ("payments", "orders", "shops"):
        (directory / name).mkdir()
    (directory / "key").write_bytes(b"k" * 32)
    (directory / "photon.toml").write_text(text)
    return directory / "photon.toml"


def write(directory: Path, begin: int, random: Random) -> dict[str, list[int]]:
    """Orders from ``begin`` on, and up to four payments of each a second later. Returns the times of the payments."""
    times: dict[str, list[int]] = {}
    orders, payments = [], []
    for n in range(begin, begin + ORDERS):
        at = EPOCH + 1000 * n
        orders.append(json.dumps({"id": f"e{n}", "order": f"o{n}", "shop": f"s{n % 5}", "at": at}))
        times[f"e{n}"] = [at + each for each in random.sample(range(-20, 12), random.randrange(5))]
        payments += [f"o{n},{each},{each % 97}" for each in times[f"e{n}"]]
    with (directory / "orders" / "orders.log").open("a") as log:
        log.writelines(f"{line}\n" for line in orders)
    time.sleep(1)
    with (directory / "payments" / "payments.csv").open("a") as log:
        log.writelines(f"{line}\n" for line in payments)
    return times


def records(directory: Path, kind: str) -> list[dict[str, Any]]:
    found = []
    for path in (directory / "output" / kind).glob("*.jsonl*"):
        if not path.name.endswith(".tmp"):
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            plain = path.with_name(path.name.removesuffix(".gz"))
            if plain == path or not plain.exists():
                found += [json.loads(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
    return found


def pairs(directory: Path) -> dict[str, Counter[int]]:
    """Event id -> times of its primary events; empty for an unmatched one."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for kind in ("joined", "unmatched"):
        for record in records(directory, kind):
            its = found[record["event_id"]]
            if (primary := record.get("primary")) is not None and kind == "joined":
                its[int(primary.get("at", 0))] += 1
    return found


def expected(name: str, times: dict[str, list[int]]) -> dict[str, Counter[int]]:
    """``times``: of the payments of each order, in the order of their log."""
    found = {}
    for event, paid in times.items():
        at = EPOCH + 1000 * int(event[1:])
        within = [each for each in paid if at - BEFORE_S <= each <= at + AFTER_S]
        before = [each for each in within if each <= at]
        found[event] = Counter({"sets": within, "latest": [max(before)] if before else [], "left": paid[:1]}[name])
    return found


def kill_drivers(file: Path) -> None:
    own = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"]]
    drivers = [each for each in own if str(file) in each.info["cmdline"] and "spark" in each.info["cmdline"]]
    assert len(drivers) == len(JOINS) + 1, [each.info["cmdline"] for each in own]
    for each in drivers:
        os.kill(each.pid, signal.SIGKILL)


def test_sets_the_latest_left_joins_and_chains_on_spark(tmp_path: Path) -> None:
    """Batches are small, so that no Java runs. Half of the events wait when the drivers are killed."""
    require_spark()
    file, random = make_site(tmp_path), Random(5)
    (tmp_path / "shops" / "shops.csv").write_text("".join(f"s{n},Shop {n}\n" for n in range(4)))
    assert photon("up", file, "--detach", "--timeout", "200", timeout=240).code == 0
    try:
        times = write(tmp_path, 0, random)
        kill_drivers(file)
        times |= write(tmp_path, ORDERS, random)
        wanted = {name: expected(name, times) for name in JOINS}
        deadline = time.monotonic() + SETTLED_S
        while any(pairs(tmp_path / name).keys() != times.keys() for name in (*JOINS, "bills")):
            assert time.monotonic() < deadline, {name: len(pairs(tmp_path / name)) for name in (*JOINS, "bills")}
            time.sleep(0.5)
        # A closed file whose ids are cleared is compressed once another one follows.
        more = len(times)
        while not all(any((tmp_path / name / "output" / "joined").glob("*.gz")) for name in JOINS):
            assert time.monotonic() < deadline
            write(tmp_path, more, random)
            more += ORDERS
            time.sleep(2)
    finally:
        photon("down", file)
    for name, its in wanted.items():
        assert {event: found for event, found in pairs(tmp_path / name).items() if event in times} == its, name
    bills = {record["event_id"]: record["primary"]["name"] for record in records(tmp_path / "bills", "joined")}
    shops = {event: f"Shop {int(event[1:]) % 5}" for event in times if int(event[1:]) % 5 < 4}
    assert {event: shop for event, shop in bills.items() if event in times} == shops
