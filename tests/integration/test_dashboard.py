"""Grafana's dashboard, asked of a real Prometheus that scrapes a deployment under load: each panel has data."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from photon.supervision.ports import free_ports
from tests.integration.commands import until
from tests.integration.verified_site import WAIT_S, site_in

DEPLOY = Path(__file__).parents[2] / "deploy"
STEP = 20  # clicks a look


def test_each_panel_has_data(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        assert not os.environ.get("CI"), "no prometheus is there: apt-get install prometheus"
        pytest.skip("no prometheus is there: apt-get install prometheus")
    page, own = (f"127.0.0.1:{port}" for port in free_ports(2))

    def prepare(base: Path) -> None:
        file = base / "photon.toml"
        file.write_text(
            file.read_text().replace('state = "state"\n', f'state = "state"\napart.status = "{page}"\n', 1)
        )

    config = (DEPLOY / "prometheus/prometheus.yml").read_text().partition("alerting:")[0].replace(": 5s", ": 1s")
    scrape = f'scrape_configs: [{{job_name: photon, static_configs: [{{targets: ["{page}"]}}]}}]\n'
    (tmp_path / "prometheus.yml").write_text(config + scrape)
    shutil.copy(DEPLOY / "prometheus/photon.rules.yml", tmp_path)
    board = json.loads((DEPLOY / "grafana/dashboards/photon-figures.json").read_bytes())
    asked = [(panel["title"], each["expr"]) for panel in board["panels"] for each in panel["targets"]]

    def answers(expr: str) -> list[Any]:
        query = urllib.parse.urlencode({"query": expr.replace("$__rate_interval", "10s")})
        with urllib.request.urlopen(f"http://{own}/api/v1/query?{query}", timeout=10) as reply:
            return list(json.load(reply)["data"]["result"])

    empty: list[tuple[str, str]] = []
    with site_in(tmp_path / "site", prepare=prepare) as site, open(tmp_path / "prometheus.log", "wb") as log:
        command = [program, f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address={own}"]
        command.append(f"--storage.tsdb.path={tmp_path / 'data'}")
        prometheus = subprocess.Popen(command, stdout=log, stderr=log)

        def all_have() -> bool:
            assert prometheus.poll() is None, (tmp_path / "prometheus.log").read_text()
            site.write(STEP)
            try:
                empty[:] = [
                    (title, expr)
                    for title, expr in asked
                    if not any(math.isfinite(float(each["value"][1])) for each in answers(expr))
                ]
            except OSError:  # it does not listen yet
                return False
            return not empty

        try:
            until(all_have, WAIT_S, "each panel has data")
        except AssertionError:
            pytest.fail(f"panels without data: {empty}")
        finally:
            prometheus.kill()
            prometheus.wait()
