"""A run's report on itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.spark.computing.plan import topology_of
from photon.spark.computing.run import Wish, _File, _Run
from tests.spark import recorded


def progress(batch: int, rows: int) -> dict[str, Any]:
    return {"batchId": batch, "sources": [{"numInputRows": rows}], "processedRowsPerSecond": float(rows)}


def test_what_comes_after_an_idle_stretch_is_counted(tmp_path: Path) -> None:
    """Spark reports it now and then, under the number of the next batch."""
    wish = Wish(
        topology=topology_of("clicks.py", recorded.CLICKS.encode()), file=tmp_path, state=tmp_path, reads=[],
        published={}, once=False, records=1, partitions=2,
    )  # fmt: skip
    known = _File(topology="clicks", shape="", partitions=2, id="me")
    nothing = cast("Any", None)
    run = _Run(nothing, wish, known, nothing, RealDisk(), SystemClock(), print)
    said = [progress(0, 12), progress(1, 2), progress(2, 0)]
    run._count(cast("Any", SimpleNamespace(recentProgress=said)))
    assert (run._records, run._rate) == (10, 0.0)
    said += [progress(2, 7), progress(3, 2)]
    run._count(cast("Any", SimpleNamespace(recentProgress=said)))
    assert (run._records, run._rate) == (15, 2.0)
