"""Generated sets are the same bytes for the same seed, and their truth matches their lines."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from bench.check import read_truth
from bench.workload import Set, Size, arriving, digest, generated
from photon.lab.demo.generator import Line


def _lines(directory: Path) -> list[bytes]:
    return [line for log in sorted(directory.iterdir()) for line in log.read_bytes().splitlines()]


def _made(root: Path, monkeypatch: pytest.MonkeyPatch) -> Set:
    monkeypatch.setenv("PHOTON_BENCH_CACHE", str(root))
    return generated(Size(200, files=3))


def test_the_truth_is_what_a_dict_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _made(tmp_path, monkeypatch)
    queries = {query["query_id"]: query for query in map(orjson.loads, _lines(made.queries))}
    pairs = {}
    for click in map(orjson.loads, _lines(made.clicks)):
        if click["query_id"] in queries:
            pairs[click["click_id"]] = digest(click, queries[click["query_id"]])
    assert read_truth(made.truth) == pairs
    assert 180 < len(pairs) < 200
    assert len(list(made.queries.iterdir())) == len(list(made.clicks.iterdir())) == 3


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (_made(tmp_path / name, monkeypatch) for name in "ab")
    assert _lines(first.clicks) == _lines(second.clicks)
    assert _lines(first.queries) == _lines(second.queries)


def test_lines_come_by_arrival_and_those_of_one_moment_as_they_were_made() -> None:
    rounds = [
        (0, [Line(5, True, b"a"), Line(1, True, b"b")]),
        (5, [Line(5, False, b"c")]),
        (9, [Line(9, True, b"d")]),
    ]
    assert [line.data for line in arriving(rounds)] == [b"b", b"a", b"c", b"d"]
