"""The DAG of deploy/airflow run by a real Airflow, over real processes: a day that is right, and one that is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from photon.lab.demo.check import records
from photon.spark.session import SparkMissing, check_present
from tests.integration.commands import until
from tests.integration.verified_site import T_S, WAIT_S, Site, site_in

ROOT = Path(__file__).parents[2]
AIRFLOW = ROOT / "build" / "airflow" / "bin" / "airflow"
DAY_S = 86_400
DAY = T_S // DAY_S * DAY_S
EVENTS = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.environ.get("CI") != "true":
        if not AIRFLOW.exists():
            pytest.skip("no Airflow: make test-airflow installs it")
        try:
            check_present()
        except SparkMissing as missing:
            pytest.skip(str(missing))

    def promise(base: Path) -> None:
        file = base / "photon.toml"
        text = file.read_text().replace("[join.clicks]\n", '[join.clicks]\nwritten_within = "5s"\n')
        file.write_text(f'clock = {{ uncertainty = "0.5s" }}\n{text}')

    with site_in(tmp_path_factory.mktemp("site"), prepare=promise) as made:
        made.write(EVENTS, missing=4)
        until(lambda: _written(made) == EVENTS, WAIT_S, "every event has a record")
        yield made


def _written(site: Site) -> int:
    return sum(1 for kind in ("joined", "unmatched") for _ in records(site.base / "output" / kind))


@pytest.fixture(scope="module")
def airflow(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its home, with a database: to migrate it takes as long as a DAG."""
    home = tmp_path_factory.mktemp("airflow")
    shutil.copytree(ROOT / "deploy" / "airflow", home / "dags")
    migrated = _airflow(home, site, home, "db", "migrate")
    assert migrated.returncode == 0, migrated.stdout + migrated.stderr
    return home


def _airflow(home: Path, site: Site, reports: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PHOTON_CONFIG": str(site.file),
        "PHOTON_REPORTS": str(reports),
        "PHOTON_VERIFY_OPTIONS": json.dumps(["--master", "local[1]", "--spark", "spark.ui.enabled=false"]),
    }
    return subprocess.run(
        [AIRFLOW, *words], env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def _tested(home: Path, site: Site, reports: Path) -> subprocess.CompletedProcess[str]:
    """``airflow dags test``: the whole DAG in one process, without a scheduler."""
    moment = datetime.fromtimestamp(DAY + DAY_S, UTC).isoformat()
    return _airflow(home, site, reports, "dags", "test", "photon_nightly", moment)


def _verdict(reports: Path) -> tuple[str, str]:
    """(day, verdict) of the only report."""
    [verdict] = reports.glob("*/verdict.json")
    return verdict.parent.name, json.loads(verdict.read_text())["verdict"]


def test_a_day_is_verified_when_it_is_complete(site: Site, airflow: Path, tmp_path: Path) -> None:
    done = _tested(airflow, site, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _verdict(tmp_path) == (datetime.fromtimestamp(DAY, UTC).date().isoformat(), "right"), done.stdout


def test_problems_fail_the_run_and_show_what_a_repair_would_do(site: Site, airflow: Path, tmp_path: Path) -> None:
    """An output file that was published is lost."""
    lost, *_ = (site.base / "output" / "joined").iterdir()
    lost.unlink()
    done = _tested(airflow, site, tmp_path)
    assert _verdict(tmp_path)[1] == "problems", done.stdout
    assert "there are problems: " in done.stdout
    assert "what_a_repair_would_do" in done.stdout
    [finished] = [line for line in (done.stdout + done.stderr).splitlines() if "DagRun Finished" in line]
    assert "state=failed" in finished
