"""Reading metrics: only what the table has, parts that fail, histograms."""

from __future__ import annotations

from pathlib import Path

import grpc
import numpy as np
import pytest

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.disks import free_space
from photon.config.metrics.families import decode
from photon.config.metrics.histogram import BOUNDS_S, Histogram
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.metrics.service import METRICS_SERVICE
from photon.config.serving import listen


async def _samples(metrics: ProcessMetrics) -> dict[tuple[str, ...], float]:
    return {(s.name, *s.labels.values()): s.value for family in await metrics.families() for s in family.samples}


async def test_a_source_s_values_come_out() -> None:
    def read(into: Readings) -> None:
        into.put("photon_cache_hits_total", 3)
        into.put("photon_registry_ids", 7, shard="2")

    async def read_later(into: Readings) -> None:
        into.put("photon_registry_ids", 8, shard="3")

    found = await _samples(ProcessMetrics([read, read_later]))
    assert found["photon_cache_hits_total",] == 3
    assert (found["photon_registry_ids", "2"], found["photon_registry_ids", "3"]) == (7, 8)
    assert found["process_resident_memory_bytes",] > 1 << 20
    assert found["process_open_fds",] > 0


@pytest.mark.parametrize(
    ("name", "labels"),
    [("photon_made_up", {}), ("photon_registry_ids", {}), ("photon_cache_hits_total", {"slot": "x"})],
)
def test_what_the_table_does_not_have_cannot_be_put(name: str, labels: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Readings().put(name, 1, **labels)


async def test_a_part_that_fails_is_left_out_whole_and_counted() -> None:
    def fails(into: Readings) -> None:
        into.put("photon_cache_hits_total", 1)
        raise OSError("no disk")

    metrics = ProcessMetrics([fails, lambda into: into.put("photon_cache_misses_total", 2)])
    found = await _samples(metrics)
    assert ("photon_cache_hits_total",) not in found
    assert found["photon_cache_misses_total",] == 2
    assert found["photon_metrics_failures_total",] == 1


async def test_details_that_fail_are_empty() -> None:
    def fails() -> dict[str, int]:
        raise OSError("no disk")

    assert await ProcessMetrics([], fails).details() == b"{}"
    assert await ProcessMetrics([], lambda: {"a": 1}).details() == b'{"a":1}'


def test_a_histogram_counts_what_is_not_above_its_bounds() -> None:
    histogram = Histogram()
    histogram.add(np.array([5_000_000, 5_000_001, -7, 7 * 10**9, 10**13], np.int64))
    buckets = dict(histogram.buckets())
    assert buckets["0.005"] == 2  # the negative one counts as 0
    assert buckets["0.01"] == 3
    assert (buckets["5.0"], buckets["7.0"], buckets[repr(BOUNDS_S[-1])], buckets["+Inf"]) == (3, 4, 4, 5)
    assert histogram.count == 5
    assert histogram.sum_s == pytest.approx(10_007.010000001)


async def test_free_space_is_of_directories_that_are_there(tmp_path: Path) -> None:
    found = await _samples(ProcessMetrics([free_space({"state": tmp_path, "gone": tmp_path / "gone"})]))
    assert found["photon_disk_free_bytes", "state"] > 0
    assert ("photon_disk_free_bytes", "gone") not in found


async def test_every_server_answers() -> None:
    server = await listen("127.0.0.1:0", "photon.v1.Test", metrics=ProcessMetrics([], lambda: {"a": 1}))
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = METRICS_SERVICE.stub(channel)
            plain = await stub.Read(pb.MetricsRequest())
            detailed = await stub.Read(pb.MetricsRequest(details=True))
            alone = await stub.Read(pb.MetricsRequest(details=True, no_samples=True))
    finally:
        await server.stop(0)
    assert "photon_build_info" in [each.name for each in decode(plain.samples)]
    assert (plain.details, detailed.details) == (b"", b'{"a":1}')
    assert (alone.samples, alone.details) == (b"", b'{"a":1}')


async def test_a_process_says_its_time() -> None:
    assert (await _samples(ProcessMetrics(now=lambda: 1_800_000_000.25)))["photon_clock_seconds",] == 1_800_000_000.25
