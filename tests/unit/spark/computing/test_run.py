"""A run's report on itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from photon.computing.wire import Watermark
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.outputs.watermarks import pairs_of
from photon.spark.computing.plan import Reads, topology_of
from photon.spark.computing.publishing import _Shown
from photon.spark.computing.run import Wish, _File, _Run
from photon.spark.data_source_options import encoded
from tests.spark import recorded


def progress(batch: int, rows: int) -> dict[str, Any]:
    return {"batchId": batch, "sources": [{"numInputRows": rows}], "processedRowsPerSecond": float(rows)}


def test_a_place_that_holds_the_watermark_back_is_named(tmp_path: Path) -> None:
    recorded.write(tmp_path, 100, 20)
    disk, stated = RealDisk(), []
    out = tmp_path / "recorded" / "out"
    with recorded.journal(tmp_path) as journal:
        pair = replace(pairs_of(journal.begin())[-1], held_by=("a log is behind",))
        journal.add(recorded.later(pair, 1))
    reads = [
        Reads("joined", place, str(at), str(at / ".photon"), ("joined",))
        for place, at in (("east", out), ("west", tmp_path / "silent"))
    ]
    topology = topology_of("clicks.py", recorded.CLICKS.encode())
    known = _File(topology="clicks", shape="", partitions=2, id="me")
    publishing = cast("Any", SimpleNamespace(mark=Watermark(), shown=_Shown(), records=0))
    for some in (reads, reads[:1]):
        wish = Wish(
            topology=topology, file=tmp_path, state=tmp_path, reads=some, published={}, once=False, records=1,
            partitions=2,
        )  # fmt: skip
        run = _Run(cast("Any", None), wish, known, publishing, disk, SystemClock(), print)
        stated.append(run._status(ended=False).held_by)
        offsets = tmp_path / "checkpoint" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        ends = {each.name: each.output_place.end(disk, each.kinds) for each in reads[:1]}
        (offsets / "0").write_text(f"v1\n{{}}\n{json.dumps(encoded(ends))}")
        stated.append(run._status(ended=False).held_by)
    silent, west = "says no watermark", "west: says no watermark"
    assert stated == [
        {"joined": [f"east: {silent}", west]}, {"joined": [west]}, {"joined": ["east: a log is behind"]},
        {"joined": ["east: a log is behind"]},
    ]  # fmt: skip
    assert run._status(ended=True).held_by == {}


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
