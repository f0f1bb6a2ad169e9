"""The first hour of a nightly verification: one command shows a report with a loss, and how to repair it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import require_spark

RUN_S = 280.0


def photon(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "photon", *words]
    return subprocess.run(
        command, cwd=directory, env=os.environ, capture_output=True, text=True, timeout=RUN_S, check=False
    )


@pytest.mark.timeout(900)
def test_the_first_report_shows_the_lost_file_and_what_it_says_repairs_it(tmp_path: Path) -> None:
    require_spark()
    site = tmp_path / "first"
    site.mkdir()
    done = photon(tmp_path, "spark", "demo", "--into", str(site), "--clicks", "500")
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "lost-cleared" in done.stdout
        (deleted,) = re.findall(r"^\$ rm (\S+)$", done.stdout, re.M)
        assert (site / "reports").is_dir()
        assert not (site / deleted).exists()
        last = done.stdout.partition("To repair it")[2]
        told = [shlex.split(line)[1:] for line in re.findall(r"^  (photon .*)$", last, re.M)]
        dry, recover, verify, down = told
        assert photon(site, *dry).returncode == 0
        repaired = photon(site, *recover)
        assert repaired.returncode == 0, repaired.stdout + repaired.stderr
        outputs = ("--output", "east/output", "--output", "west/output")
        checked = photon(site, "feed", "check", "--of", "east", *outputs, "--wait", "120s")
        assert checked.returncode == 0, checked.stdout
        again = photon(site, *verify)
        assert again.returncode == 0, again.stdout + again.stderr
        read = photon(site, "read", "--config", "photon.toml", "--datacentre", "east")
        assert read.returncode == 0, read.stderr
        assert photon(site, *down).returncode == 0
    finally:
        photon(site, "down", "photon.toml")
