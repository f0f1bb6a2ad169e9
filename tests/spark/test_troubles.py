"""Troubles of nightly jobs, and the report after each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.spark.session import said_by_spark
from photon.spark.verify.verdict import VERDICT_NAME
from tests.integration.hostile.small_disk import mounted
from tests.spark.test_nights import Verifier, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_full_disk_leaves_the_report_that_was_there_and_no_half_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = made(tmp_path, 9, days=1, clicks=40)
    nights.lines.remove(nights.joined()[0])
    nights.write_outputs()
    with mounted(tmp_path / "full", "100k") as disk:
        before = disk / "report" / VERDICT_NAME
        before.parent.mkdir()
        before.write_text("{}")
        with (disk / "fill").open("wb", buffering=0) as fill:
            fill.write(bytes(1 << 20))  # as many of them as there is room for
        with pytest.raises(Exception, match="No space left") as failed:
            Verifier(spark, nights, monkeypatch).night(1, name="full/report")
        said = said_by_spark(failed.value)
        assert said == f"{disk}/report.partial/problems: No space left on device; free some space"
        assert before.read_text() == "{}"
        assert sorted(each.name for each in disk.glob("[!.]*")) == ["fill", "report"]
