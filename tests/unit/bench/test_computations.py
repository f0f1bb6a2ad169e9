"""The sets and the truth of the benchmark of computations."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import computations


def test_a_set_has_all_keys_and_its_truth_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOTON_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(computations, "RECORDS", 50)
    log = computations.generated(10)
    totals, windows = (computations.truth(log, task) for task in computations.TASKS)
    assert {key for key, _ in totals} == {f"k{n:07}" for n in range(10)}
    assert sum(n for n, _ in totals.values()) == sum(n for n, _ in windows.values()) == 50
    assert sum(cents for _, cents in totals.values()) == sum(cents for _, cents in windows.values())
    assert len({minute for _, minute in windows}) > 1
