"""Real processes report their metrics; their status page shows them, to people and to Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from photon.config.metrics.table import PROCESS, SERVICES
from photon.supervision.ports import free_ports
from tests.integration.commands import photon, until
from tests.integration.verified_site import SLOT, Site

EVENTS, MISSING = 400, 3
WAIT_S = 120.0
# Metrics of several datacentres, of settings that this deployment does not have, or of trouble.
ONLY_SOMETIMES = {
    "photon_dispatcher_home_trusted", "photon_dispatcher_left_to_home_total", "photon_dispatcher_home_in_time_total",
    "photon_dispatcher_log_problems_total", "photon_registry_boundary_seconds", "photon_registry_memory_limit_bytes",
    "photon_verifier_alarms", "photon_joiner_copy_behind_bytes", "photon_joiner_copy_bypassed",
    "photon_joiner_copy_trouble", "photon_objects_requests_total", "photon_objects_retries_total",
    "photon_objects_read_bytes_total", "photon_objects_written_bytes_total",
}  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """A running pipeline that has joined its events, and its page's address."""
    site = Site(tmp_path_factory.mktemp("status"), owned_alarm=300)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    text = site.file.read_text()
    site.file.write_text(text.replace('state = "state"\n', f'state = "state"\napart.status = "{address}"\n', 1))
    site.write(EVENTS, missing=MISSING)
    try:
        site.up()
        yield site, f"http://{address}"
    finally:
        photon("down", site.file)


def _get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()
    except OSError:
        return 0, b""


def _status(url: str) -> dict[str, Any]:
    code, body = _get(f"{url}/status.json")
    found: dict[str, Any] = json.loads(body) if code == 200 else {}
    return found


def _all_done(url: str) -> bool:
    said = _status(url)
    total = said.get("ledger", {}).get("total", {})
    return total.get("joined") == EVENTS - MISSING and total.get("unmatched") == MISSING and not said["alarms"]


def test_status_json_shows_what_was_done(page: tuple[Site, str]) -> None:
    _, url = page
    until(lambda: _all_done(url), WAIT_S, "all events have their verdicts, and the page says so")
    until(lambda: _status(url)["slots"][0]["cleared_bytes"] > 0, WAIT_S, "what was published is cleared")
    said = _status(url)
    assert {row["service"] for row in said["processes"] if row["up"]} == {
        "dispatcher", "joiner", "eventstore", "verifier", "registry",
    }  # fmt: skip
    assert all(row["memory_bytes"] > 1 << 20 and row["uptime_s"] > 0 for row in said["processes"])
    assert said["latency"]["join"]["within"]["60"] == 1.0
    assert [(shard["shard"], shard["leader"], shard["ids"]) for shard in said["registry"]["shards"]] == [
        (1, "r1", EVENTS)
    ]
    assert (said["slots"][0]["slot"], said["slots"][0]["state"]) == (SLOT, "live")
    assert said["flow"]["pending"] == 0
    assert said["oldest"] == []
    assert sum(hour["joined"] for hour in said["ledger"]["hours"]) == EVENTS - MISSING
    assert _get(f"{url}/healthz") == (200, b"ok\n")
    assert _get(f"{url}/etc/passwd")[0] == 404


def test_processes_expose_what_the_table_has(page: tuple[Site, str]) -> None:
    _, url = page
    until(lambda: _all_done(url), WAIT_S, "all is done")
    code, body = _get(f"{url}/metrics")
    assert code == 200
    exposed: dict[str, set[str]] = {}
    for family in parsed(body.decode()):
        for sample in family.samples:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            exposed.setdefault(sample.labels["service"], set()).add(name)
            if sample.name == "photon_up":
                assert sample.value == 1, sample.labels
    for service in ("dispatcher", "joiner", "eventstore", "registry", "verifier"):
        beside = SERVICES["watermark"] if service == "verifier" else []
        wanted = {metric.name for metric in (*SERVICES[service], *beside, *SERVICES[PROCESS])}
        found = {name for name in exposed[service] if name.startswith("photon_")} - {"photon_up"}
        assert wanted - found <= ONLY_SOMETIMES
        assert found <= wanted
        assert {"process_resident_memory_bytes", "process_open_fds"} <= exposed[service]
    assert "photon_status_gather_seconds" in exposed["status"]


def test_the_terminal_shows_the_same(page: tuple[Site, str]) -> None:
    site, url = page
    until(lambda: _all_done(url), WAIT_S, "all is done")
    for where in (("--config", site.file), ("--url", url)):
        told = photon("status", *where, "-o", "json")
        assert told.code == 0, told.err
        [east] = json.loads(told.out)["datacentres"]
        assert east["ledger"]["total"]["joined"] == EVENTS - MISSING
    shown = photon("status", "--url", url)
    assert "east: 5 of 5 processes answer" in shown.out
    assert f"joined {EVENTS - MISSING}" in shown.out
    assert photon("status").code == 2
    assert photon("status", "--url", "http://127.0.0.1:1").code == 1


def test_a_process_that_is_down_is_an_alarm(page: tuple[Site, str]) -> None:
    site, url = page
    until(lambda: _all_done(url), WAIT_S, "all is done")
    site.hold(f"joiner {SLOT}")
    until(lambda: bool(_status(url)["alarms"]), WAIT_S, "the page says that the joiner is silent")
    assert f"joiner {SLOT}" in {alarm["where"] for alarm in _status(url)["alarms"]}
    metrics = {family.name: family for family in parsed(_get(f"{url}/metrics")[1].decode())}
    up = {(s.labels["service"], s.labels["process"]): s.value for s in metrics["photon_up"].samples}
    assert (up["joiner", SLOT], up["verifier", "east"]) == (0, 1)
    assert photon("status", "--url", url).code == 3
    site.release(f"joiner {SLOT}")
    until(lambda: not _status(url)["alarms"], WAIT_S, "it is up again")
