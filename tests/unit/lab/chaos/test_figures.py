"""Figures and growth."""

import os
from pathlib import Path

import pytest

from photon.lab.chaos.api import ChaosFailed
from photon.lab.chaos.history import History, read
from photon.lab.chaos.report import Back, Sample, Seen, Spread, back, latency, read_process, spread, uses
from photon.lab.latency import Verdict

MS = 1_000_000
MIB = 1 << 20


def test_spreads() -> None:
    assert spread([]) == Spread(0, 0.0, 0.0, 0.0)
    assert spread([3.0]) == Spread(1, 3.0, 3.0, 3.0)
    assert spread([float(n) for n in range(101)]) == Spread(101, 50.0, 99.0, 100.0)


def test_latency_counts_what_never_came() -> None:
    verdicts = [Verdict(0, 500 * MS, True), Verdict(2_000 * MS, 7_000 * MS, True), Verdict(0, 9_000 * MS, False)]
    found = latency(verdicts, [(1_500 * MS, 2_500 * MS)], 2)
    assert found.within == {"1": 0.25, "10": 0.5, "60": 0.5}
    assert found.during == Spread(1, 5000.0, 5000.0, 5000.0)
    assert (found.overall.count, found.unmatched.p50_ms, found.outstanding) == (2, 9000.0, 2)


def test_how_a_datacentre_came_back() -> None:
    seen = [
        Seen(1.0, True, 0, 100, 1),
        Seen(9.0, False, 0, 100, 1),
        Seen(11.0, True, 0, 100, 1),  # up, but it has not looked at its logs yet
        Seen(12.0, True, 9_000, 150, 2),
        Seen(14.0, True, 100, 300, 4),
    ]
    assert back("east", 2.0, 10.0, seen, 1_000) == Back("east", 8.0, 4.0, 200, 3)
    assert back("east", 2.0, 10.0, seen[:-1], 1_000) == Back("east", 8.0, None, 50, 1)


def test_growth_is_told_from_settling() -> None:
    flat = [Sample(10 * n, (60 + min(n, 8)) * MIB, 20) for n in range(40)]
    leaking = [Sample(10 * n, 100 * MIB + n * 4 * MIB, 20) for n in range(40)]
    files = [Sample(10 * n, 50 * MIB, 20 + n) for n in range(60)]
    short = leaking[:5]
    found = {use.name: use for use in uses({("a", 1): flat, ("b", 2): leaking, ("c", 3): files, ("d", 4): short})}
    judged = {"a": (True, False), "b": (True, True), "c": (True, True), "d": (False, False)}
    assert {name: (use.judged, use.growing) for name, use in found.items()} == judged
    assert found["b"].lived_s == 390


def test_the_longest_life_counts() -> None:
    [use] = uses({("a", 1): [Sample(0, MIB, 1)], ("a", 2): [Sample(n, MIB, 2) for n in range(20)]})
    assert (use.files_after, use.lived_s) == (2, 19)


def test_a_process_is_read() -> None:
    sample = read_process(os.getpid(), 2.0)
    assert sample is not None
    assert sample.memory > MIB
    assert sample.files > 2
    assert read_process(1 << 22, 2.0) is None


def test_a_history_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path, seed=3) as history:
        history.add(1.23456, "begin", fault=0)
    with open(path, "ab") as file:
        file.write(b'{"torn')
    assert list(read(path)) == [
        {"history": "photon-chaos", "version": 1, "seed": 3},
        {"at": 1.235, "what": "begin", "fault": 0},
    ]
    with pytest.raises(ChaosFailed, match="name another directory"):
        History(path)
    path.write_bytes(b'{"at":1}\n')
    with pytest.raises(ChaosFailed, match="is not a history"):
        list(read(path))
