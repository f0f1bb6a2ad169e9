"""Ranges that are too new for a backfill."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from photon.cli.spark.backfill import copied
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.operations.spark_backfill import Wish, backfill
from tests.spark.backfill_site import make_site

HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize(
    ("match", "back_h", "why"),
    [("first", 0.5, "the live pipeline still works on it"), ("all", 3.0, "final after unmatched_after")],
)
def test_a_range_that_is_not_decided_yet_is_refused(tmp_path: Path, match: str, back_h: float, why: str) -> None:
    site = make_site(tmp_path, 3)
    kind = f'[join.clicks]\nmatch = "{match}"\nunmatched_after = "5h"\n[join.clicks.primary]'
    site.file.write_text(site.file.read_text().replace("[join.clicks.primary]", kind))
    to_ns = time.time_ns() - int(back_h * HOUR_NS)
    wish = Wish(None, 0, to_ns, tmp_path / "out", False, 3600.0)
    with pytest.raises(UsageError, match=why) as refused:
        backfill(load(site.file, environment={}), tmp_path, wish, print, copied)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()
