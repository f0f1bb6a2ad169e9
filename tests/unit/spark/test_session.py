"""Settings of a new session, without Java."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from photon.spark import session as module


def test_a_master_among_sparks_settings_is_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors elsewhere cannot call a driver that listens as with a local master."""
    made: dict[str, str] = {}
    whole = module._wanted

    def wanted(master: str | None, settings: Mapping[str, str], directory: Path) -> dict[str, str]:
        made.update(whole(master, settings, directory))
        raise module.SparkMissing("enough")

    monkeypatch.setattr(module, "check_present", lambda: None)
    monkeypatch.setattr(module, "_wanted", wanted)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # else the session sets it
    for name, listens in (("spark://head:7077", None), ("local[2]", "127.0.0.1")):
        made.clear()
        with pytest.raises(module.SparkMissing):
            module.session("photon", settings={"spark.master": name})
        assert (made["spark.master"], made.get("spark.driver.bindAddress")) == (name, listens)
