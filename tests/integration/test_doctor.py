"""photon doctor before a deployment was ever started, while it runs over TLS, and when something is wrong with it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import photon, until
from tests.integration.verified_site import SLOT, Site

TLS = '\n[tls]\ndirectory = "certs"\n'
WAIT_S = 120.0
DISKS = {"disks"}  # whether these are healthy depends on the machine that runs the test


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything is created, nothing was started."""
    site = Site(tmp_path_factory.mktemp("doctor"), owned_alarm=300)
    site.file.write_text(site.file.read_text() + TLS)
    (site.base / "key").chmod(0o600)
    made = photon("certs", "for", site.file)
    assert made.code == 0, made.err
    site.write(20)
    try:
        yield site
    finally:
        photon("down", site.file)


def _said(file: Path, *, well: bool) -> dict[str, Any]:
    result = photon("doctor", "--config", file, "-o", "json")
    said: dict[str, Any] = json.loads(result.out)
    wrong = _wrong(said)
    assert result.code == (0 if said["level"] == "ok" else 3), result.err
    assert not wrong if well else wrong, said
    return said


def _wrong(said: dict[str, Any]) -> list[tuple[str, str]]:
    """(area, where) of each problem, except the disks of this machine."""
    findings = [each for each in said["findings"] if each["area"] not in DISKS and each["level"] != "ok"]
    assert all(each["where"] and each["what"] and each["do"] for each in findings)
    return [(each["area"], each["where"]) for each in findings]


def test_in_the_order_of_a_deployments_life(site: Site) -> None:
    before = _said(site.file, well=True)
    assert (before["running"], before["here"]) == (False, ["east"])
    assert {each["area"] for each in before["findings"]} >= {"configuration", "clocks", "ports", "certificates"}

    port = int(site.file.read_text().split("dispatcher = '127.0.0.1:")[1].split("'")[0])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen(1)
        assert _wrong(_said(site.file, well=False)) == [("ports", f"127.0.0.1:{port}")]

    site.up()
    running = _said(site.file, well=True)
    assert running["running"]
    told = {each["area"]: each["what"] for each in running["findings"]}
    assert "5 processes within" in told["clocks"]
    assert "the same as all 5 processes" in told["versions"]
    assert told["ports"] == "5 ours"

    top = photon("status", "top", "--config", site.file, "--every", "0.5", "-o", "json")
    assert top.code == 0, top.err
    seen = json.loads(top.out)
    assert {row["service"] for row in seen["processes"]} == {
        "dispatcher", "joiner", "eventstore", "verifier", "registry",
    }  # fmt: skip
    assert all(row["cpu"] is not None and row["memory_bytes"] > 1 << 20 for row in seen["processes"])
    assert [row["slot"] for row in seen["slots"]] == [SLOT]
    assert {row["leader"] for row in seen["shards"]} == {"r1"}

    site.hold(f"joiner {SLOT}")
    until(lambda: ("ports", f"joiner {SLOT}") in _wrong(_said(site.file, well=False)), WAIT_S, "it is missed")
    site.release(f"joiner {SLOT}")

    key = site.base / "certs" / "datacentre-east.key"
    os.chmod(key, 0o644)
    os.chmod(site.base / "key", 0o644)
    said = _said(site.file, well=False)
    found = _wrong(said)
    assert ("certificates", str(key.with_suffix(".crt"))) in found
    assert ("configuration", str(site.base / "key")) in found
    assert [each for each in said["findings"] if f"chmod 600 {key}" in each["do"]]
    table = photon("doctor", "--config", site.file)
    assert (table.code, "chmod 600" in table.out) == (3, True)  # a long path is broken in its cell


def test_a_file_with_a_mistake_and_no_file(tmp_path: Path) -> None:
    bad = tmp_path / "photon.toml"
    bad.write_text("[registry]\nshards = 0\n")
    said = _said(bad, well=False)
    assert [area for area, _ in _wrong(said)] == ["configuration"]
    alone = photon("doctor", "-o", "json")
    assert {each["area"] for each in json.loads(alone.out)["findings"]} == {
        "configuration",
        "versions",
        "descriptors",
    }
    gone = photon("doctor", "--config", tmp_path / "nowhere.toml")
    assert (gone.code, "no such file" in gone.err) == (2, True)
