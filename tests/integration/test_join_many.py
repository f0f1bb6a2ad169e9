"""`photon join` of each order with all its payments, or with the latest: headerless CSV, killed at random moments."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import photon, until
from tests.integration.join_logs import Logs
from tests.integration.verified_site import SLOT, site_in

EPOCH = 1_760_000_000
SIDES = """
[join.pay.primary]
format = "csv"
columns = ["order", "at", "amount"]
key = "order"
time = { field = "at", unit = "s" }

[join.pay.foreign]
format = "csv"
columns = ["order", "at", "customer"]
key = "order"
id = "order"
time = { field = "at", unit = "s" }
"""


@dataclass
class Payments(Logs):
    """Some orders have no payment, most have a few, which come before and after them, in any order."""

    base: Path
    kind: str
    orders: int = 600
    seed: int = 5
    pairs: dict[str, list[str]] = field(default_factory=dict)  # order -> amounts, of all its payments by time

    def __post_init__(self) -> None:
        super().__init__(self.base, clicks=1)
        self.config.write_text(f"[join.pay]\n{self.kind}\n{SIDES}")
        random = Random(self.seed)
        payments = []
        for number in range(self.orders):
            times = sorted(random.sample(range(-400, 400), random.choice((0, 1, 1, 2, 3, 6))))
            self.pairs[f"o{number}"] = []
            for at in times:
                amount = f"{random.randrange(10_000)}.{len(payments) % 100:02}"
                payments.append((EPOCH + number + at, f"o{number}", amount))
                self.pairs[f"o{number}"].append(f"{at} {amount}")
        random.shuffle(payments)
        self.payments = payments

    def append(self, side: Path, name: str, rows: Iterable[tuple[str, int, str]]) -> None:
        with (side / name).open("a") as log:
            log.writelines(f"{key},{at},{rest}\n" for key, at, rest in rows)

    def pay(self, begin: int, end: int) -> None:
        rows = self.payments[begin:end]
        for part in range(2):
            self.append(self.primary, f"payments{part}.csv", ((key, at, amount) for at, key, amount in rows[part::2]))

    def order(self, begin: int, end: int) -> None:
        rows = ((f"o{n}", EPOCH + n, f"customer {n}") for n in range(begin, end))
        self.append(self.foreign, "orders.csv", rows)

    def found(self) -> dict[str, list[tuple[str, int | None, int | None]]]:
        """Order -> its records: time and amount, pair number and pair count."""
        out: dict[str, list[tuple[str, int | None, int | None]]] = {key: [] for key in self.pairs}
        for record in records(self.output / "joined"):
            paid, number = record["primary"], int(record["event_id"][1:])
            what = f"{int(paid['at']) - EPOCH - number} {paid['amount']}"
            out[record["event_id"]].append((what, record.get("pair"), record.get("pairs")))
        return out

    def unmatched(self) -> list[str]:
        return sorted(record["event_id"] for record in records(self.output / "unmatched"))

    def all_pairs(self, expected: dict[str, list[str]]) -> None:
        """Exactly these, each set complete, and the rest unmatched."""
        found = self.found()
        for key, amounts in expected.items():
            n = len(amounts)
            assert sorted(what for what, _, _ in found[key]) == sorted(amounts), key
            assert [(pair, of) for _, pair, of in found[key]] == [(at, n) for at in range(1, n + 1)], key
        assert self.unmatched() == sorted(key for key, amounts in expected.items() if not amounts)


def test_an_order_has_all_its_payments_once_whenever_it_is_killed(tmp_path: Path) -> None:
    site = Payments(tmp_path, 'match = "all"\nunmatched_after = "1s"\nprimary_max_delay = "0s"\n')
    flags = ("--set", "clock.uncertainty=0.2", "--set", "limits.batch_events=50")
    random = Random(11)
    site.pay(0, len(site.payments))  # before their orders: only the clock decides when they are final
    step = site.orders // 4
    for part in range(4):
        with site.following(*flags) as running:
            site.order(part * step, (part + 1) * step)
            time.sleep(2.0 + random.random() * 3.0)
            running.kill()
    ended = site.once(*flags)
    assert ended.code == 0, ended.err
    site.all_pairs(site.pairs)
    joined = sum(1 for amounts in site.pairs.values() if amounts)
    assert (ended.json["read"], ended.json["joined"]) == (site.orders, joined)
    assert ended.json["unmatched"] == site.orders - joined
    again = site.once(*flags)
    assert again.json == ended.json
    several = next(key for key, amounts in site.pairs.items() if len(amounts) == 6)
    told = photon("explain", several, site.output, "-o", "json")
    written = next(step for step in json.loads(told.out)["steps"] if step["what"].startswith("written"))
    assert "with all 6 primary events of its key" in written["what"]


def test_a_set_waits_for_payments_that_come_within_its_window(tmp_path: Path) -> None:
    site = Payments(tmp_path, 'match = "all"\nunmatched_after = "12s"\n', orders=40)
    half = len(site.payments) // 2
    flags = ("--set", "clock.uncertainty=0.2")
    site.pay(0, half)
    site.order(0, site.orders)
    with site.following(*flags) as running:
        time.sleep(4.0)
        assert not any(site.found().values()), "written before the set was final"
        site.pay(half, len(site.payments))
        deadline = time.monotonic() + 120
        while sum(map(len, site.found().values())) < len(site.payments):
            assert time.monotonic() < deadline, running.err.read_text()
            time.sleep(0.1)
        running.kill()
    assert site.once(*flags).code == 0
    site.all_pairs(site.pairs)


def test_bounds_leave_out_payments_of_other_times(tmp_path: Path) -> None:
    site = Payments(tmp_path, 'match = "all"\nwithin = { before = "100s", after = "5m" }\n', orders=200)
    site.pay(0, len(site.payments))
    site.order(0, site.orders)
    ended = site.once()
    assert ended.code == 0, ended.err
    near = {key: [each for each in has if -100 <= int(each.split()[0]) <= 300] for key, has in site.pairs.items()}
    site.all_pairs(near)
    reasons = {str(record["reason"]) for record in records(site.output / "unmatched")}
    assert "no primary event of its key lies within its time bounds" in reasons


def test_the_latest_payment_that_is_not_after_the_order(tmp_path: Path) -> None:
    site = Payments(tmp_path, 'match = "latest"\n', orders=200)
    site.pay(0, len(site.payments))
    site.order(0, site.orders)
    ended = site.once()
    assert ended.code == 0, ended.err
    before = {key: [each for each in has if int(each.split()[0]) <= 0][-1:] for key, has in site.pairs.items()}
    assert site.found() == {key: [(each, None, None) for each in has] for key, has in before.items()}
    assert site.unmatched() == sorted(key for key, has in before.items() if not has)


INVOICES = """
[join.pay]
match = "all"
unmatched_after = "1s"
primary_max_delay = "0s"

[join.pay.primary]
format = "csv"
columns = ["order", "at", "amount"]
key = "order"

[join.pay.foreign]
format = "jsonl"
key = { field = "lines.order", each = true }
id = "invoice"
time = { field = "at", unit = "s" }
"""


def test_an_invoice_has_the_payments_of_all_its_orders_once_whenever_it_is_killed(tmp_path: Path) -> None:
    site = Payments(tmp_path, "")
    site.config.write_text(INVOICES)
    random, invoices = Random(12), 300
    orders = {
        f"i{n}": [f"o{at}" for at in random.sample(range(site.orders), n % 4)] + ["none"] for n in range(invoices)
    }
    flags = ("--set", "clock.uncertainty=0.2", "--set", "limits.batch_events=20")
    site.pay(0, len(site.payments))
    step = invoices // 3
    for part in range(3):
        with site.following(*flags) as running:
            with (site.foreign / "invoices.jsonl").open("a") as log:
                for n in range(part * step, (part + 1) * step):
                    lines = [{"order": order} for order in orders[f"i{n}"]]
                    log.write(json.dumps({"invoice": f"i{n}", "at": EPOCH + n, "lines": lines}) + "\n")
            time.sleep(2.0 + random.random() * 3.0)
            running.kill()
    ended = site.once(*flags)
    assert ended.code == 0, ended.err
    found: dict[str, list[str]] = {}
    for record in records(site.output / "joined"):
        pairs = found.setdefault(record["event_id"], [])
        pairs.append(record["primary"]["order"])
        assert (record["pair"], record["key"]) == (len(pairs), "|".join(orders[record["event_id"]]))
        assert record["pairs"] >= len(pairs)
    wanted = {name: [one for one in each for _ in site.pairs.get(one, ())] for name, each in orders.items()}
    assert found == {name: each for name, each in wanted.items() if each}
    assert site.unmatched() == sorted(name for name, each in wanted.items() if not each)
    assert site.once(*flags).json == ended.json


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ('match = "latest"\nwithin = { after = "1s" }', "within.after"),
        ('match = "all"\nfile_map = "sparse"', "sparse"),
        ('match = "all"\nunmatched_after = "1s"\nwithin = { after = "2s" }', "unmatched_after"),
        ('match = "some"', "match"),
    ],
)
def test_contradictions_are_one_line_and_nothing_is_written(tmp_path: Path, kind: str, said: str) -> None:
    site = Payments(tmp_path, kind, orders=2)
    site.pay(0, 1)
    site.order(0, 2)
    refused = site.once()
    assert refused.code == 2
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert not site.output.exists()


def test_what_never_ends_is_refused(tmp_path: Path) -> None:
    site = Payments(tmp_path, 'match = "all"', orders=2)
    site.pay(0, 1)
    site.order(0, 2)
    for more in ((), ("--once", "--keep-pending")):
        refused = photon(*site.arguments(*more))
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
        assert "ever final" in refused.err or "ever be final" in refused.err
    assert not site.output.exists()


def test_a_deployment_writes_whole_sets_and_its_verifier_finds_what_is_not_whole(tmp_path: Path) -> None:
    def several(base: Path) -> None:
        file = base / "photon.toml"
        file.write_text(file.read_text().replace("[join.clicks]", '[join.clicks]\nmatch = "all"'))

    with site_in(tmp_path, prepare=several) as site:
        site.write(60, missing=10)
        with site.queries.open("ab") as queries:
            queries.writelines(b'{"q":"q%06d","words":"a second query"}\n' % n for n in range(40))

        def whole() -> bool:
            pairs = Counter(site.ids())
            return all(pairs[f"c{n:06}"] == 1 + (n < 40) for n in range(60))

        until(whole, 120, "all pairs are written")
        site.hold(f"joiner {SLOT}")
        site.release(f"joiner {SLOT}")
        until(site.settled, 120, "they are checked and cleared")
        assert site.alarms() == []
        ledger = json.loads(photon("status", "ledger", "--config", site.file, "-o", "json").out)["total"]
        assert (ledger["joined"], ledger["unmatched"]) == (50, 10)
        joined = site.output_of("joined")
        first, second = joined.read_bytes().split(b"\n")[:2]
        assert json.loads(first)["pairs"] == 2
        site.kill_joiner()
        with joined.open("ab") as file:
            file.write(first + b"\n" + second.replace(b'"pair":2', b'"pair":1') + b"\n")
        site.publish(joined)
        until(lambda: "torn" in {kind for kind, _ in site.alarms()}, 120, "pairs that do not stand together are told")
