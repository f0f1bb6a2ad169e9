"""Kinds of join on real processes: keys of several fields, bounds on event times. Killed halfway; exact pairs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import photon, until
from tests.integration.join_logs import Logs
from tests.integration.verified_site import SLOT, T_S, WAIT_S, site_in

EVENTS = 240
EPOCH = 1_760_000_000
KEYS = """
[join.orders.primary]
format = "csv"
columns = ["shop", "order", "email", "what"]
key = [{ field = "shop", as = "number" }, "order", { field = "email", case = "fold", trim = true }]
[join.orders.foreign]
format = "jsonl"
key = [{ field = "shop.number", as = "number" }, "order", { field = "email", case = "fold", trim = true }]
id = "id"
time = { field = "t", unit = "s" }
"""
BOUNDS = """
[join.views]
within = { before = "1h", after = "5m" }
[join.views.primary]
format = "jsonl"
key = "k"
time = { field = "t", unit = "s" }
[join.views.foreign]
format = "logfmt"
key = "k"
id = "id"
time = { field = "t", unit = "s" }
"""


class Shop(Logs):
    """Payments name shop, order and customer in varying ways; orders of the next shop have the same numbers."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, clicks=1)
        self.config.write_text(KEYS)

    def append(self, begin: int, end: int) -> None:
        with (self.primary / "orders.csv").open("ab") as log:
            for n in range(begin, end):
                for shop in (n % 7, n % 7 + 10):
                    log.write(b"%03d,%d,Ann%d@Example.com,order %d of %d\n" % (shop, n, n, n, shop))
        with (self.foreign / "payments.log").open("ab") as log:
            for n in range(begin, end):
                shop: Any = (n % 7, f"{n % 7}.0", f"0{n % 7}")[n % 3]
                paid = {
                    "id": f"p{n}",
                    "t": EPOCH + n,
                    "shop": {"number": shop},
                    "order": n,
                    "email": f" ANN{n}@example.com",
                }
                log.write(json.dumps(paid).encode() + b"\n")


@contextmanager
def killed_halfway(site: Logs, joined: int) -> Iterator[None]:
    """Follows until ``joined`` records are there, then runs the caller's writes, and is killed in the middle
    of them."""
    with site.following() as running:
        deadline = time.monotonic() + 60
        while site.joined() < joined:
            assert time.monotonic() < deadline, running.err.read_text()
            time.sleep(0.02)
        yield
        time.sleep(0.1)
        running.kill()


def test_payments_meet_the_order_of_their_shop_whatever_the_spelling(tmp_path: Path) -> None:
    site = Shop(tmp_path)
    site.append(0, EVENTS // 2)
    with killed_halfway(site, EVENTS // 4):
        site.append(EVENTS // 2, EVENTS)
    with (site.foreign / "payments.log").open("ab") as log:
        log.write(b'{"id":"bad","t":1,"shop":{"number":"seven"},"order":1,"email":"a"}\n')
    result = site.once("--max-rejected", "1")
    assert result.code == 0, result.err
    found = [
        (each["event_id"], each["key"], each["primary"]["what"])  # type: ignore[index]
        for each in records(site.output / "joined")
    ]
    assert sorted(found) == sorted(
        (f"p{n}", f"{n % 7}|{n}|ann{n}@example.com", f"order {n} of {n % 7}") for n in range(EVENTS)
    )
    (bad,) = records(site.output / "rejected")
    assert bad["reason"] == "key field 'shop.number' is 'seven', not a number"
    ledger = result.json
    assert (ledger["joined"], ledger["rejected"], ledger["pending"], ledger["unmatched"]) == (EVENTS, 1, 0, 0)


class Views(Logs):
    """Each view has an article with its key; every fifth was read too long after it, every seventh before it."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, clicks=1)
        self.config.write_text(BOUNDS)

    def append(self, begin: int, end: int) -> None:
        with (self.primary / "articles.log").open("ab") as log:
            for n in range(begin, end):
                log.write(b'{"k":"k%d","t":%d}\n' % (n, EPOCH + n))
        with (self.foreign / "views.log").open("ab") as log:
            for n in range(begin, end):
                log.write(b"id=v%d k=k%d t=%d\n" % (n, n, EPOCH + n + self.later(n)))

    @staticmethod
    def later(n: int) -> int:
        """Seconds."""
        return 3601 if n % 5 == 0 else -301 if n % 7 == 0 else (3600, -300, 0)[n % 3]


def test_pairs_out_of_bounds_are_unmatched_at_once_and_counted(tmp_path: Path) -> None:
    site = Views(tmp_path)
    site.append(0, EVENTS // 2)
    with killed_halfway(site, EVENTS // 4):
        site.append(EVENTS // 2, EVENTS)
    with (site.foreign / "views.log").open("ab") as log:
        log.write(b"id=alone k=nobody t=%d\n" % EPOCH)
    result = site.once()
    assert result.code == 0, result.err
    reasons = {
        3601: "1:00:01 older, and within.before is 1:00:00",
        -301: "0:05:01 newer, and within.after is 0:05:00",
    }
    late = {n: reasons[site.later(n)] for n in range(EVENTS) if site.later(n) in reasons}
    assert Counter(each["event_id"] for each in records(site.output / "joined")) == Counter(
        f"v{n}" for n in range(EVENTS) if n not in late
    )
    said = [(each["event_id"], each["reason"]) for each in records(site.output / "unmatched")]
    assert sorted(said) == sorted(
        [
            *((f"v{n}", f"the primary event is {why}") for n, why in late.items()),
            ("alone", "no primary event has this key"),
        ]
    )
    ledger = result.json
    assert (ledger["unmatched"], ledger["pending"]) == (len(late) + 1, 0)
    assert ledger["unpaired"] <= len(late)  # what was read again after the kill is known as unmatched, not why
    assert ledger["read"] == EVENTS + 1 == ledger["joined"] + ledger["unmatched"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('before = "1h", after = "5m"', "", "join.views.within: before and after are both 0"),
        ('"1h"', '"-1h"', "join.views.within.before = '-1h': a duration is"),
        ('within = {', 'unmatched_after = "1m"\nwithin = {', "is longer than join.views.unmatched_after = 60 s"),
        ('format = "jsonl"\nkey = "k"\ntime = { field = "t", unit = "s" }', 'format = "jsonl"\nkey = "k"',
         "join.views: within compares event times; give the primary a time too"),
        ('key = "k"\ntime', 'key = ["k", "l"]\ntime', "join.views: key has 2 fields in primary and 1 in foreign"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_and_nothing_is_written(tmp_path: Path, old: str, new: str, said: str) -> None:
    site = Views(tmp_path)
    site.append(0, 5)
    assert old in BOUNDS
    site.config.write_text(BOUNDS.replace(old, new, 1))
    result = site.once()
    assert (result.code, len(result.err.strip().splitlines())) == (2, 1), result.err
    assert said in result.err
    assert not site.output.exists()


def test_services_verify_both_and_explain_them(tmp_path: Path) -> None:
    """A pipeline whose joiner is killed: the verifier has read every line and found nothing wrong."""

    def prepare(base: Path) -> None:
        file = base / "photon.toml"
        text = file.read_text().replace(
            'unmatched_after = "1s"', 'unmatched_after = "5m"\nwithin = { before = "1h" }'
        )
        text = text.replace('key = "q"\n', 'key = ["q", { field = "words", case = "fold" }]\n')
        text = text.replace("[join.clicks.foreign]", 'time = { field = "t", unit = "s" }\n[join.clicks.foreign]')
        file.write_text(text)
        assert photon("doctor", "config", "--config", file).code in (0, 3)

    with site_in(tmp_path, prepare=prepare) as site:

        def write(begin: int, end: int) -> None:
            with open(site.queries, "ab") as queries, open(site.clicks, "ab") as clicks:
                for n in range(begin, end):
                    late = 3601 if n % 4 == 0 else 60
                    queries.write(b'{"q":"q%d","words":"Big Lamp","t":%d}\n' % (n, T_S + n))
                    clicks.write(b'{"id":"c%d","q":"q%d","words":"big lamp","t":%d}\n' % (n, n, T_S + n + late))
            site.events = end

        write(0, 100)
        until(lambda: len(site.ids()) >= 50, WAIT_S, "half of them")
        write(100, 200)
        site.kill_joiner()
        site.release(f"joiner {SLOT}")
        until(site.settled, WAIT_S, "all is written, cleared and checked")
        assert site.alarms() == []
        assert Counter(site.ids()) == Counter(f"c{n}" for n in range(200))
        out = [json.loads(line) for line in site.output_of("unmatched").read_bytes().splitlines()]
        assert sorted(int(each["event_id"][1:]) for each in out) == list(range(0, 200, 4))
        assert {each["reason"] for each in out} == {
            "the primary event is 1:00:01 older, and within.before is 1:00:00"
        }
        story = photon("explain", "c4", "--config", site.file, "-o", "json").json
        assert (story["verdict"], story["key"]) == ("unmatched", "q4|big lamp")
        assert "1:00:01 older" in json.dumps(story)
        total = photon("status", "ledger", "--config", site.file, "-o", "json")
        counts = json.loads(total.out)["total"]
        assert (counts["joined"], counts["unmatched"], counts["pending"]) == (150, 50, 0)
        assert 0 < counts["unpaired"] <= 50
