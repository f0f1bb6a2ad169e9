"""`photon join` over the worked examples, as their READMEs say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import photon

EXAMPLES = Path(__file__).parents[2] / "adapters" / "examples"
DONE, ATTENTION = 0, 3


@pytest.mark.parametrize(
    ("name", "code", "counts"),
    [
        ("ads_billing", ATTENTION, {"read": 17, "joined": 10, "filtered": 6, "rejected": 1}),
        ("access_errors", DONE, {"read": 9, "joined": 8, "filtered": 1}),
        ("zeek_protocols", DONE, {"read": 28, "joined": 28}),
        ("avro_clicks", DONE, {"read": 60, "joined": 60}),
        ("length_crc", ATTENTION, {"read": 50, "joined": 49, "rejected": 1}),
        ("stack_traces", DONE, {"read": 6, "joined": 6}),
    ],
)
def test_an_example_joins_its_logs(tmp_path: Path, name: str, code: int, counts: dict[str, int]) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(EXAMPLES / name / "logs", logs)
    for file in logs.glob("*/*"):
        os.utime(file, (1_790_000_000, 1_790_000_000))  # a last record without its end counts once nobody writes
    result = photon(
        "join", "--primary", logs / "primary", "--foreign", logs / "foreign", "--output", tmp_path / "out",
        "--config", EXAMPLES / name / "photon.toml", "--once", "-o", "json",
    )  # fmt: skip
    assert result.code == code, result.err
    assert {each: count for each, count in result.json.items() if count} == counts
    assert len(list(records(tmp_path / "out" / "joined"))) == counts["joined"]
