import gzip
from pathlib import Path

import orjson

from photon.lab.latency import Latencies, percentiles


def _line(click: str, at: str) -> bytes:
    return orjson.dumps({"event_id": click, "joined_at": at}) + b"\n"


def test_follows_growing_rolled_and_compressed_output(tmp_path: Path) -> None:
    start = 1_767_225_600_000_000_000  # 2026-01-01
    latencies = Latencies([tmp_path], {f"c{n}": start for n in range(3)})
    one, two, three = (_line(f"c{n}", f"2026-01-01T00:00:00.{n}00000+00:00") for n in range(3))
    file = tmp_path / "a-000001.jsonl"
    file.write_bytes(one + two[:10])
    latencies.follow()
    assert latencies.all_ms == [0.0]
    file.write_bytes(one + two)
    latencies.follow()
    file.unlink()
    (tmp_path / "a-000001.jsonl.gz").write_bytes(gzip.compress(one + two + three))
    latencies.follow()
    latencies.follow()
    assert [round(each) for each in latencies.all_ms] == [0, 100, 200]


def test_percentiles_of_too_few_values_are_zero() -> None:
    assert percentiles([4.0]) == (0.0, 0.0, 0.0)
    assert percentiles(range(101)) == (50.0, 90.0, 99.0)
