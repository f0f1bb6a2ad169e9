"""Alert rules by promtool; Grafana's files against the fields in its documentation: there is no Grafana here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import yaml

from photon.config.metrics.table import METRICS
from tests.unit.deploy.alerts import CASES, as_promtool

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "photon.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "photon-figures.json"
TOOL_S = 240
FIGURES = range(7, 14)
OF_PROCESSES = {"process_open_fds", "process_max_fds"}


def _promtool(*arguments: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        if os.environ.get("CI"):
            pytest.fail("no promtool is there: apt-get install prometheus")
        pytest.skip("no promtool is there: apt-get install prometheus")
    seldom = {**os.environ, "GOGC": "800"}  # collecting garbage would be a third of its work
    done = subprocess.run(
        [tool, *arguments], cwd=RULES.parent, env=seldom, capture_output=True, text=True, timeout=TOOL_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _alerts() -> list[str]:
    return re.findall(r"^      - alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def test_prometheus_can_read_its_configuration() -> None:
    _promtool("check", "config", "prometheus.yml")


def _rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_each_alert_fires_and_resolves_in_its_time_and_is_silent_for_a_quiet_hour(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    file = tmp_path / "test.yml"  # JSON is YAML
    file.write_text(json.dumps(as_promtool(CASES, _rules())))
    _promtool("test", "rules", file)


def test_each_alert_has_a_case_and_says_what_to_do() -> None:
    rules = _rules()
    assert list(rules) == list(dict.fromkeys(case.alert for case in CASES)) == _alerts()
    for name, rule in rules.items():
        assert set(rule["annotations"]) == {"summary", "todo"}, name
        assert set(rule["labels"]) == {"severity"}, name
        assert "for" in rule, name


def test_the_runbooks_say_when_each_fires_and_resolves() -> None:
    page = (DEPLOY.parent / "docs" / "operations" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+)/(\d+) \| (Photon[\w, ]+) \|$", page, re.MULTILINE)
    said = {(name, int(fires), int(resolves)) for fires, resolves, names in rows for name in names.split(", ")}
    assert said == {(case.alert, case.fires_s, case.resolves_s) for case in CASES}


def _metrics_in(text: str) -> set[str]:
    names = set(re.findall(r"\b(?:photon|process)_[a-z0-9_]+\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name not in METRICS else name for name in names}


@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=lambda file: file.name)
def test_what_is_asked_for_is_there(file: Path) -> None:
    exprs = _exprs() if file is DASHBOARD else re.findall(r"^          (\S.*)$", RULES.read_text(), re.MULTILINE)
    asked = _metrics_in("\n".join(each for each in exprs if not each.startswith(("summary:", "todo:"))))
    assert asked - OF_PROCESSES <= set(METRICS)
    assert asked


def test_alerts_are_grouped_by_labels_that_their_metrics_have() -> None:
    of_page = {"datacentre", "service", "process"}
    for labels, expr in re.findall(r"\bby \(([\w, ]+)\) \(((?:[^()]|\([^()]*\))*)\)", RULES.read_text()):
        metrics = _metrics_in(expr)
        assert metrics, expr
        for name in metrics - OF_PROCESSES:
            assert set(labels.split(", ")) <= {*METRICS[name].labels, *of_page}, (labels, name)


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A table of a file."""


class _DataSource(_Strict):
    type: Literal["prometheus"]
    uid: Literal["photon-prometheus"]


class _Target(_Strict):
    refId: str  # noqa: N815
    datasource: _DataSource
    expr: str
    legendFormat: str  # noqa: N815


class _Place(_Strict):
    h: int
    w: int
    x: int
    y: int


class _Defaults(_Strict):
    unit: Literal["s", "bytes", "ops", "percentunit"]
    min: float
    max: float | None = None


class _Field(_Strict):
    defaults: _Defaults
    overrides: list[None]


class _Legend(_Strict):
    displayMode: Literal["list", "table", "hidden"]  # noqa: N815
    placement: Literal["bottom", "right"]
    showLegend: bool  # noqa: N815


class _Tooltip(_Strict):
    mode: Literal["single", "multi", "none"]
    sort: Literal["none", "asc", "desc"]


class _Options(_Strict):
    legend: _Legend
    tooltip: _Tooltip


class _Panel(_Strict):
    id: int
    type: Literal["timeseries"]
    title: str
    description: str
    datasource: _DataSource
    gridPos: _Place  # noqa: N815
    fieldConfig: _Field  # noqa: N815
    options: _Options
    targets: list[_Target]


class _Dashboard(_Strict):
    uid: str
    title: str
    description: str
    tags: list[str]
    timezone: Literal["utc", "browser"]
    editable: bool
    schemaVersion: int  # noqa: N815
    version: int
    refresh: str
    time: dict[Literal["from", "to"], str]
    panels: list[_Panel]


def _dashboard() -> _Dashboard:
    return msgspec.json.decode(DASHBOARD.read_bytes(), type=_Dashboard)


def _exprs() -> list[str]:
    return [target.expr for panel in _dashboard().panels for target in panel.targets]


def test_the_dashboard_has_the_documented_fields_and_a_panel_for_each_figure() -> None:
    board = _dashboard()
    ids = [panel.id for panel in board.panels]
    assert len(ids) == len(set(ids))
    for figure in FIGURES:
        assert sum(panel.title.startswith(f"Figure {figure}:") for panel in board.panels) == 1, figure
    cells = [
        (x, y)
        for place in (panel.gridPos for panel in board.panels)
        for x in range(place.x, place.x + place.w)
        for y in range(place.y, place.y + place.h)
    ]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert all(0 <= x < 24 for x, _ in cells)


def test_prometheus_can_read_every_question_of_the_dashboard(tmp_path: Path) -> None:
    exprs = enumerate(expr.replace("$__rate_interval", "1m") for expr in _exprs())
    rules = [{"record": f"asked:{number}", "expr": expr} for number, expr in exprs]
    file = tmp_path / "asked.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    _promtool("check", "rules", file)


def test_provisioning_names_what_the_dashboard_asks() -> None:
    source = (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text()
    assert "uid: photon-prometheus" in source
    assert "type: file" in (DEPLOY / "grafana/provisioning/dashboards/photon.yml").read_text()
