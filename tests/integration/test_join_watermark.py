"""Watermarks of ``photon join``: at the end of ``--once``, while it follows, and in a chain of joins."""

from __future__ import annotations

import json
import time
from pathlib import Path

from photon.config.disk import RealDisk
from photon.outputs.log.copier import whole_ns
from photon.outputs.watermarks import Pair, late_in, pairs_of, read_journal
from tests.integration.commands import photon, running, until

CONFIG = """
clock = { uncertainty = "0.5s" }
[join.clicks]
unmatched_after = "1s"
written_within = "2s"
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "id"
time = { field = "t", unit = "s" }
[join.buys]
unmatched_after = "15s"
[join.buys.primary]
join = "clicks"
key = "foreign.id"
[join.buys.foreign]
format = "jsonl"
key = "c"
id = "id"
time = { field = "t", unit = "s" }
"""
WAIT_S = 120.0


class Site:
    def __init__(self, base: Path) -> None:
        self.base, self.file = base, base / "photon.toml"
        self.file.write_text(CONFIG)
        for name in ("queries", "clicks", "buys"):
            (base / name).mkdir()

    def write(self, name: str, **record: object) -> None:
        with open(self.base / name / "a.log", "a") as log:
            log.write(json.dumps(record) + "\n")

    def click(self, number: int, *, query: bool = True) -> None:
        if query:
            self.write("queries", q=f"q{number}")
        self.write("clicks", id=f"c{number}", q=f"q{number}", t=time.time())

    def clicks(self, *more: str) -> list[str | Path]:
        sides = ["--primary", self.base / "queries", "--foreign", self.base / "clicks", "--output", self.base / "out"]
        return ["join", *sides, "--config", self.file, "--join", "clicks", *more]

    def buys(self, *more: str) -> list[str | Path]:
        sides = ["--primary", self.base / "out", "--foreign", self.base / "buys", "--output", self.base / "sold"]
        return ["join", *sides, "--config", self.file, "--join", "buys", *more]

    def pairs(self) -> list[Pair]:
        return pairs_of(read_journal(RealDisk(), self.base / "out" / ".photon"))

    def exact_s(self) -> float:
        return max((pair.exact_ns or 0 for pair in self.pairs()), default=0) / 1e9


def test_at_the_end_of_once_all_that_was_read_is_before_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for number in range(20):
        site.click(number, query=number % 5 > 0)
    begun = time.time()
    assert photon(*site.clicks("--once"), timeout=WAIT_S).code == 0
    last = site.pairs()[-1]
    assert (last.waiting, last.held_by) == (0, ())
    assert (last.percentile_ns or 0) / 1e9 > begun - 1.0
    out = tmp_path / "out"
    shown = photon("watermark", "--output", out, "-o", "json", timeout=WAIT_S)
    assert (shown.code, json.loads(shown.out)["datacentres"][0]["waiting"]) == (0, 0)
    wait = ["watermark", "wait", f"{begun - 5:.0f}", "--final", "--timeout", "0", "--output", out]
    assert photon(*wait, timeout=WAIT_S).code == 0
    read = photon("read", out, "--with-watermark", timeout=WAIT_S).out.splitlines()
    assert json.loads(read[-1])["percentile_ns"] == last.percentile_ns
    assert photon("watermark", "wait", "1h", "--output", tmp_path, timeout=WAIT_S).code == 2


def test_it_moves_while_a_join_follows_and_a_chain_calls_nothing_unmatched_that_is_not_copied(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.click(0)
    with running(*site.clicks(), log=tmp_path / "clicks.err"):
        until(lambda: site.exact_s() > 0, WAIT_S, "there is a watermark")
        upstream = tmp_path / "sold" / ".photon" / "upstream" / "primary"
        with running(*site.buys(), log=tmp_path / "buys.err"):
            until(lambda: whole_ns(upstream) > 0, WAIT_S, "the copy says up to when it is whole")
            for number in range(1, 40):
                site.click(number, query=number % 5 > 0)
                site.write("buys", id=f"b{number}", c=f"c{number}", t=time.time())
                time.sleep(0.1)
            done = time.time()
            until(lambda: site.exact_s() > done, WAIT_S, "it passes what was written")
            sold = [tmp_path / "sold" / kind for kind in ("joined", "unmatched")]
            until(lambda: sum(map(_lines, sold)) == 39, WAIT_S, "each of them has its verdict")
    assert _lines(sold[0]) == 39 - 7
    assert late_in(read_journal(RealDisk(), tmp_path / "out" / ".photon")) == 0


def _lines(directory: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in directory.glob("*.jsonl"))
