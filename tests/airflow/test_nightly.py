"""The DAG of deploy/airflow run by a real Airflow, over real processes: a day that is right, and one that is not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from photon.lab.demo.check import records
from photon.spark.session import SparkMissing, check_present
from tests.integration.commands import until
from tests.integration.verified_site import T_S, WAIT_S, Site, site_in

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build" / "airflow" / "bin" / "python"
DAY_S = 86_400
DAY = T_S // DAY_S * DAY_S
AFTER = datetime.fromtimestamp(DAY + DAY_S, UTC).date().isoformat()  # the events are of long ago
EVENTS = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.environ.get("CI") != "true":
        if not PYTHON.exists():
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
def airflow(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """With a database: to migrate it takes as long as a DAG."""
    home = tmp_path_factory.mktemp("airflow")
    shutil.copytree(ROOT / "deploy" / "airflow", home / "dags")
    environment = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PHOTON_CONFIG": str(site.file),
        "PHOTON_VERIFY_OPTIONS": json.dumps(
            ["--master", "local[1]", "--spark", "spark.ui.enabled=false", "--to", AFTER]
        ),
    }
    with subprocess.Popen(
        [PYTHON, "-c", COMMANDS], env=environment, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True
    ) as process:
        made = Airflow(process)
        code, said = made("db", "migrate")
        assert code == "0", said
        yield made
        process.stdin.close()  # type: ignore[union-attr]  # it ends


COMMANDS = """
import json, os, sys
from airflow.__main__ import main
for line in sys.stdin:
    words, reports = json.loads(line)
    sys.argv, os.environ["PHOTON_REPORTS"] = ["airflow", *words], reports
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    print("ended with", code, flush=True)
"""
ENDED = re.compile(r"ended with (.*)\n")


class Airflow:
    """Its commands one after the other in one process: most of what each takes is to import Airflow."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, *words: str, reports: Path = Path()) -> tuple[str, str]:
        """(exit code or message, output)"""
        given, shown = self._process.stdin, self._process.stdout
        assert given is not None
        assert shown is not None
        print(json.dumps([words, str(reports)]), file=given, flush=True)
        lines: list[str] = []
        for line in shown:
            if ended := ENDED.fullmatch(line):
                return ended[1], "".join(lines)
            lines.append(line)
        raise AssertionError("".join(lines))

    def tested(self, reports: Path) -> tuple[str, str]:
        """``airflow dags test``: the whole DAG in one process, without a scheduler."""
        moment = datetime.fromtimestamp(DAY + DAY_S + 4.5 * 3600, UTC).isoformat()
        return self("dags", "test", "photon_nightly", moment, reports=reports)


def _verdict(reports: Path) -> tuple[str, str]:
    """(day, verdict) of the only report."""
    [verdict] = reports.glob("*/verdict.json")
    return verdict.parent.name, json.loads(verdict.read_text())["verdict"]


def test_a_day_is_verified_when_it_is_complete(airflow: Airflow, tmp_path: Path) -> None:
    code, said = airflow.tested(tmp_path)
    assert code == "0", said
    assert _verdict(tmp_path) == (datetime.fromtimestamp(DAY, UTC).date().isoformat(), "right"), said


def test_problems_fail_the_run_and_show_what_a_repair_would_do(site: Site, airflow: Airflow, tmp_path: Path) -> None:
    """An output file that was published is lost."""
    lost, *_ = (site.base / "output" / "joined").iterdir()
    lost.unlink()
    code, said = airflow.tested(tmp_path)
    assert code == "DagRun failed", said
    assert _verdict(tmp_path)[1] == "problems", said
    assert "there are problems: " in said
    assert "what_a_repair_would_do" in said
    [finished] = [line for line in said.splitlines() if "DagRun Finished" in line]
    assert "state=failed" in finished
