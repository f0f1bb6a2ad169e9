"""The first hour with `photon join`: no configuration, the key as an option, and guesses that were wrong."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from photon.lab.demo.check import records
from tests.docs.fences import ROOT, commands_of
from tests.integration.commands import Result, photon


class Shop:
    """Two small logs, and ``photon join`` without a configuration."""

    def __init__(self, base: Path) -> None:
        self.base, self.output = base, base / "out"

    def write(self, name: str, *rows: dict[str, object]) -> None:
        path = self.base / name
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def join(self, *more: str, primary: str = "orders", foreign: str = "payments") -> Result:
        sides = ("--primary", self.base / primary, "--foreign", self.base / foreign)
        return photon("join", *sides, "--output", self.output, "--once", "-o", "json", *more)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def random_id(number: int) -> str:
    return f"{number * 2654435761 % (1 << 32):08x}"


def test_the_key_is_an_option_and_a_refusal_ends_with_the_command(shop: Shop) -> None:
    shop.write("orders/a.log", *({"id": n, "item": f"i{n % 2}"} for n in (1, 2, 3)))
    shop.write("payments/a.log", *({"order_id": n, "amount": 5 * n} for n in (1, 2, 3)))
    refused = shop.join()
    assert refused.code == 2
    line, *example, command = refused.err.strip().splitlines()
    assert "'id' with foreign 'order_id' could be the key, but 'order_id' may number the foreign records" in line
    assert "join" in tomllib.loads("\n".join(example))
    assert command.endswith(" --once --primary-key id --foreign-key order_id")
    name, *words = shlex.split(command)
    joined = photon(*words, "-o", "json")
    assert (name, joined.code, joined.json["joined"]) == ("photon", 0, 3), joined.err
    wrong = shop.join("--primary-key", "item", "--foreign-key", "order_id")
    assert wrong.code == 2
    assert (
        "this output was started with primary.key = id; to use primary.key = item, give a new --output" in wrong.err
    )
    both = shop.join("--key", "id", "--config", "x.toml")
    assert (both.code, "--config and --key both describe" in both.err) == (2, True)


@pytest.mark.parametrize("page", ["docs/ids.md", "docs/inference.md"])
def test_the_commands_of_the_pages_with_options(tmp_path: Path, page: str) -> None:
    """They join logs as the pages describe them."""
    for number, (_, words) in enumerate(commands_of((ROOT / page).read_text())):
        if not {"--id", "--primary-key"} & set(words):
            continue  # those about files: test_join_inputs.py
        shop = Shop(tmp_path / str(number))
        shop.base.mkdir()
        orders = [{"id": n, "order": random_id(n)} for n in range(9)]
        own = [{"payment_id": random_id(n + 99), "paid_at": 1_790_000_000 + n} for n in range(9)]
        payments = [{"order_id": n, "order": random_id(n), **each} for n, each in enumerate(own)]
        for name, rows in (("orders", orders), ("payments", payments)):
            shop.write(f"{name}/a.log", *rows)
            cells = [",".join(map(str, row)) for row in (rows[0], *(row.values() for row in rows))]
            (shop.base / f"{name}.csv").write_text("\n".join(cells) + "\n")
        ours = {"orders", "payments", "out"}
        done = photon(*[str(shop.base / word) if word.strip("/").split(".")[0] in ours else word for word in words])
        assert done.code == 0, done.err
        assert sum(1 for _ in records(shop.output / "joined")) == 9


def test_lines_that_share_a_guessed_id_and_differ_end_with_exit_code_3(shop: Shop) -> None:
    """Payments that change: on the first day each has one line."""
    shop.write("orders/a.log", *({"order": random_id(n)} for n in range(50)))
    first = [{"payment_id": random_id(n + 999), "order": random_id(n), "sum": n} for n in range(50)]
    shop.write("payments/a.log", *first)
    begun = shop.join()
    assert (begun.code, begun.json["joined"]) == (0, 50), begun.err
    assert "event id = 'payment_id'" in begun.err
    shop.write("payments/b.log", *first[:10], *({**row, "sum": -1} for row in first[:7]))
    second = shop.join()
    assert (second.code, second.json["duplicate"], second.json["conflicting"]) == (3, 17, 7)
    assert "7 lines have the event id of an earlier line but different content, so not joined: " in second.err
    assert f": {random_id(999)}: a.log at byte 0 and b.log at byte " in second.err
    assert "photon: 7 lines were dropped as duplicates although their contents differ" in second.err.splitlines()[-1]
    third = shop.join()
    assert (third.code, "conflicting" in third.json) == (0, False), "they are told once"
    told = shop.join("--id", "order")
    assert "this output was started with id = payment_id; to use id = order, give a new --output" in told.err


def test_what_was_found_cannot_be_corrected_in_place_and_that_is_said(shop: Shop) -> None:
    shop.write("orders/a.log", *({"order": random_id(n)} for n in range(50)))
    shop.write("payments/a.log", *({"payment_id": random_id(n + 999), "order": random_id(n)} for n in range(50)))
    assert shop.join().code == 0
    kept = shop.output / ".photon" / "inferred.toml"
    kept.write_text(kept.read_text().replace('id = "payment_id"\n', ""))
    wrong = shop.join()
    assert wrong.code == 2
    assert "this output was started with id = payment_id; to use id = place, give a new --output" in wrong.err


def test_a_key_that_turns_out_ambiguous_ends_with_exit_code_3(shop: Shop) -> None:
    shop.write("orders/a.log", *({"mail": random_id(n), "total": n} for n in range(50)))
    shop.write("payments/a.log", *({"mail": random_id(n), "sum": -n} for n in range(50)))
    first = shop.join()
    assert (first.code, first.json["joined"]) == (0, 50), first.err
    shop.write("orders/b.log", {"mail": random_id(3), "total": 99})
    shop.write("payments/b.log", {"mail": random_id(3), "sum": 99})
    second = shop.join()
    assert (second.code, second.json["ambiguous"]) == (3, 1), second.err
    assert "so the detected key may be wrong; give the right one with --key" in second.err.splitlines()[-1]
    assert shop.join("--key", "mail").code == 0, "it was told"


def test_one_log_for_both_sides_is_refused(shop: Shop) -> None:
    rows = [{"flow": random_id(n), "event_type": ("flow", "alert")[n % 2], "n": n} for n in range(60)]
    shop.write("log/eve.json", *rows)
    for primary, foreign in (("log", "log"), ("log/eve.json", "log"), ("log/*.json", "log/eve.json")):
        refused = shop.join(primary=primary, foreign=foreign)
        assert refused.code == 2
        line = refused.err.splitlines()[0]
        assert "name the same logs, whose records are of several kinds (event_type: flow 30, alert 30)" in line


def test_logs_without_a_time_are_joined_and_what_it_costs_is_said(shop: Shop) -> None:
    shop.write("orders/a.log", *({"order": random_id(n)} for n in range(9)))
    shop.write("payments/a.log", *({"order": random_id(n % 9), "n": n} for n in range(20)))
    result = shop.join()
    assert (result.code, result.json["joined"]) == (0, 20), result.err
    (said,) = [line for line in result.err.splitlines() if "no event time" in line]
    assert "every event counts as 1970-01-01T00:00:00Z" in said
    assert "the output has no watermark" in said
    assert {record["event_time_ns"] for record in records(shop.output / "joined")} == {0}
    refused = shop.join("--set", "registry.retention=3d")
    assert "time is missing, and registry.retention is set" in refused.err
