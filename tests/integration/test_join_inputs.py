"""`photon join` on files, globs and standard input, without a configuration, and with the one that it printed."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile

from photon.lab.demo.check import records
from tests.integration.commands import Result, photon
from tests.integration.forked import begin
from tests.unit.local_join.sets import LogSet, counters_without_names, csv, hexes, iso, jsonl, ms


def join(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    words = ["join", *arguments, "--once", "-o", "json"]
    if stdin is None:
        return photon(*words)
    with TemporaryFile() as stream:
        stream.write(stdin)
        stream.seek(0)
        process = begin(*words, stdin=stream, stdout=PIPE, stderr=PIPE, text=True)
        out, err = process.communicate(timeout=120)
    return Result(process.wait(), out, err)


def pairs(output: Path) -> list[tuple[str, str]]:
    """(foreign amount, primary customer) of each joined record."""
    return sorted((r["foreign"]["amount"], r["primary"]["customer"]) for r in records(output / "joined"))


def shop(base: Path, seed: int) -> tuple[list[dict[str, object]], list[dict[str, object]], list[tuple[str, str]]]:
    """Orders, payments, and their joined records."""
    rng = random.Random(seed)
    orders = [{"order": o, "customer": f"c{i}", "placed": ms(i)} for i, o in enumerate(hexes(rng, 60))]
    paid = [(rng.choice(orders), f"{i}") for i in range(90)]
    payments = [{"ref": o["order"], "amount": amount, "paid_at": ms(i)} for i, (o, amount) in enumerate(paid)]
    return orders, payments, sorted((amount, str(o["customer"])) for o, amount in paid)


def test_a_file_and_a_glob_with_packed_and_rolled_ones(tmp_path: Path) -> None:
    orders, payments, expected = shop(tmp_path, 1)
    (tmp_path / "orders.log").write_bytes(jsonl(orders[40:]))
    (tmp_path / "orders.log.1.gz").write_bytes(gzip.compress(jsonl(orders[:40])))
    (tmp_path / "p" / "x").mkdir(parents=True)
    (tmp_path / "p" / "x" / "pay-1.log").write_bytes(jsonl(payments[:50]))
    (tmp_path / "p" / "pay-2.log.gz").write_bytes(gzip.compress(jsonl(payments[50:])))
    (tmp_path / "p" / "other.txt").write_text("no payment\n")
    sides = ("--primary", tmp_path / "orders.log", "--foreign", tmp_path / "p" / "**" / "pay-*")
    first = join(*sides, "--output", tmp_path / "out")
    assert first.code == 0, first.err
    assert "key = 'order' of the primary records, 'ref' of the foreign ones" in first.err
    assert pairs(tmp_path / "out") == expected
    again = join(*sides, "--output", tmp_path / "out")
    assert (again.code, again.err) == (0, "")
    assert pairs(tmp_path / "out") == expected


def test_standard_input_is_joined_exactly_once_however_often_it_comes(tmp_path: Path) -> None:
    orders, payments, expected = shop(tmp_path, 2)
    (tmp_path / "orders.log").write_bytes(jsonl(orders))
    sides = ("--primary", tmp_path / "orders.log", "--foreign", "-", "--output", tmp_path / "out")
    begun = jsonl(payments[:60])
    assert join(*sides, stdin=begun.removesuffix(b"\n")).code == 0  # its last line is complete: the stream has ended
    assert len(pairs(tmp_path / "out")) == 60
    assert join(*sides, stdin=begun.removesuffix(b"\n")).code == 0
    assert join(*sides, stdin=b"").code == 0
    assert len(pairs(tmp_path / "out")) == 60
    assert join(*sides, stdin=jsonl(payments)).code == 0  # it begins with the earlier lines
    assert pairs(tmp_path / "out") == expected
    assert join(*sides, stdin=gzip.compress(jsonl(payments))).code == 0
    assert pairs(tmp_path / "out") == expected


def test_primary_records_from_standard_input(tmp_path: Path) -> None:
    orders, payments, expected = shop(tmp_path, 3)
    (tmp_path / "pay.log").write_bytes(jsonl(payments))
    sides = ("--primary", "-", "--foreign", tmp_path / "pay.log", "--output", tmp_path / "out")
    result = join(*sides, stdin=jsonl(orders))
    assert result.code == 0, result.err
    assert pairs(tmp_path / "out") == expected


def test_the_configuration_that_is_shown_can_be_used_as_it_is(tmp_path: Path) -> None:
    """Counters without names: the right key is shown, but not chosen."""
    rng = random.Random(4)
    primary, foreign = LogSet("", *counters_without_names(rng), None).write(tmp_path)
    refused = join("--primary", primary, "--foreign", foreign, "--output", tmp_path / "out")
    assert refused.code == 2
    said, *shown, command = refused.err.strip().splitlines()
    assert "may be chance" in said
    assert command.startswith("photon join ")
    assert not list(tmp_path.glob("out/joined/*"))
    (tmp_path / "own.toml").write_text("\n".join(shown))
    result = join(
        "--primary", primary, "--foreign", foreign, "--output", tmp_path / "out", "--config", tmp_path / "own.toml"
    )
    assert result.code == 0, result.err
    assert result.json["joined"] == result.json["read"] == 500


def test_csv_without_header_with_several_payments_an_order(tmp_path: Path) -> None:
    rng = random.Random(5)
    orders = rng.sample(range(10**7, 10**8), 80)
    paid = [rng.choice(orders) for _ in range(200)]
    (tmp_path / "orders.csv").write_bytes(csv((o, f"customer {o}", iso(i)) for i, o in enumerate(orders)))
    (tmp_path / "payments.csv").write_bytes(csv((iso(i), o, i) for i, o in enumerate(paid)))
    result = join(
        "--primary", tmp_path / "orders.csv", "--foreign", tmp_path / "payments.csv", "--output", tmp_path / "out"
    )
    assert result.code == 0, result.err
    found = sorted((r["foreign"]["c3"], r["primary"]["c2"]) for r in records(tmp_path / "out" / "joined"))
    assert found == sorted((str(i), f"customer {o}") for i, o in enumerate(paid))


def test_what_cannot_be_followed_or_read_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("{}\n")
    out = ("--output", tmp_path / "out")
    for words, told in (
        (("--primary", tmp_path / "a.log", "--foreign", "-", *out), "needs --once"),
        (("--primary", "-", "--foreign", "-", *out, "--once"), "only one side can be standard input"),
        (("--primary", tmp_path / "b.log", "--foreign", "-", *out, "--once"), "no such directory or file"),
        (("--primary", tmp_path / "*.csv", "--foreign", "-", *out, "--once"), "no file matches"),
        (("--primary", tmp_path / "a.log", "--foreign", "-", *out, "--once", "--stop-with-parent"), "standard input"),
    ):
        result = photon("join", *words)
        assert (result.code, result.out) == (2, "")
        assert told in result.err
        assert result.err.count("\n") == 1
        assert not (tmp_path / "out").exists()
