"""Metrics are named as Prometheus names them; no label has more values than the deployment has parts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from photon.config.metrics.histogram import Histogram
from photon.config.metrics.readings import Readings
from photon.config.metrics.table import METRICS, SERVICES, Kind, Metric

UNITS = ("seconds", "bytes")  # base units; metrics without a unit count things, which their name says
NOT_UNITS = re.compile(
    r"_(ns|us|ms|milliseconds|micros|minutes|hours|days|kb|mb|gb|kib|mib|gib|percent|ratio_percent|bits|count)(_|$)"
)
# Every permitted label, and the bound on its values. Ids, keys, paths of logs and texts of errors are not permitted.
BOUNDED = {
    "datacentre": "the deployment file's", "service": "kinds of process", "process": "the deployment's",
    "join": "the deployment file's", "home": "datacentres", "source": "regions", "destination": "regions",
    "slot": "of the datacentre", "shard": "of the registry, 1,024 at most", "version": "of the release that runs",
    "directory": "named in the code", "verdict": "an enumeration", "outcome": "an enumeration",
    "kind": "an enumeration", "finding": "an enumeration", "signal": "of telemetry", "side": "primary, foreign",
    "upstream": "the deployment file's datacentres", "topology": "one a process",
    "interval": "owners, as many as processes", "computation": "of the topology's code",
}  # fmt: skip
PROMTOOL_S = 120


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_name_follows_the_conventions(metric: Metric) -> None:
    name = metric.name
    assert re.fullmatch(r"photon_[a-z][a-z0-9]*(_[a-z0-9]+)*", name)
    assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert not re.search(r"_(sum|bucket|created|info)$", name) or name == "photon_build_info"
    assert not NOT_UNITS.search(name)
    base = name.removesuffix("_total")
    for unit in UNITS:
        assert base.endswith(f"_{unit}") or f"_{unit}_" not in base, "the unit stands last"
    if metric.kind is Kind.HISTOGRAM:
        assert base.endswith("_seconds")


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_help_is_a_sentence_and_labels_are_bounded(metric: Metric) -> None:
    assert metric.help[0].isupper() or metric.help[0].isdigit() or metric.help.startswith(("limits.", "registry."))
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert set(metric.labels) <= set(BOUNDED)
    assert len(metric.labels) == len(set(metric.labels))


def test_a_name_says_whose_it_is() -> None:
    for service, metrics in SERVICES.items():
        if service in ("every process", "status"):
            continue
        assert {metric.name.split("_")[1] for metric in metrics} == {service}
    assert sum(map(len, SERVICES.values())) == len(METRICS)


def test_prometheus_itself_finds_nothing_wrong() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        if os.environ.get("CI"):
            pytest.fail("no promtool is there: apt-get install prometheus")
        pytest.skip("no promtool is there: apt-get install prometheus")
    into, times = Readings(), Histogram()
    times.add(np.full(3, 10**9, np.int64))
    for metric in METRICS.values():
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind is Kind.HISTOGRAM:
            into.put_histogram(metric.name, times, **labels)
        else:
            into.put(metric.name, 1, **labels)
    checked = subprocess.run(
        [tool, "check", "metrics"], input=into.text(), capture_output=True, text=True, timeout=PROMTOOL_S
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
