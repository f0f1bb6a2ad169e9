"""A registry's export as rows, for some hours only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from photon.spark.exports import export_rows, plan_export
from photon.spark.sources import RegistrySource, TimeRange
from tests.unit.idregistry.model import time_of
from tests.unit.idregistry.operations.test_files import written


def test_ids_of_other_times_are_left_out_but_those_that_were_given_back(tmp_path: Path) -> None:
    shared, parts = plan_export(RegistrySource(directory=str(written(tmp_path / "backup"))), 2)

    def read(window: TimeRange | None) -> list[dict[str, object]]:
        narrowed = msgspec.structs.replace(shared, window=window)
        return [row for part in parts for batch in export_rows(narrowed, part) for row in batch.to_pylist()]

    every = read(None)
    assert sorted(row["event_time_ns"] for row in every) == sorted(time_of(i) for i in range(40))  # type: ignore[type-var]
    begin, end = sorted(time_of(i) for i in range(40))[10:21:10]
    kept = read(TimeRange(begin_ns=begin, end_ns=end))
    given_back = [row for row in every if row["generation"]]
    assert len(given_back) == 1
    inside = [row for row in every if begin <= row["event_time_ns"] < end]  # type: ignore[operator]
    assert sorted(row["digest"] for row in kept) == sorted({row["digest"] for row in (*inside, *given_back)})  # type: ignore[type-var]
    assert len(kept) < len(every) / 2
