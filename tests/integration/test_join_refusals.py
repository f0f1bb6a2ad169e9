"""Anything final and wrong is refused before any event has a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commands import photon
from tests.integration.join_logs import Logs


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.mark.parametrize("lost", [True, False])
def test_another_key_joins_nothing_again(logs: Logs, lost: bool) -> None:
    logs.finish()
    key = logs.output / ".photon" / "key"
    right = key.read_bytes()
    key.write_bytes(bytes(32))
    if lost:
        key.unlink()
    lines = (logs.foreign / "clicks.log").read_bytes().splitlines(keepends=True)
    (logs.foreign / "again.log").write_bytes(b"".join(reversed(lines)))  # the same lines, but not a copy of the log
    refused = logs.once("--max-rejected", "1000")
    assert refused.code in (1, 2)
    assert len(refused.err.splitlines()) == 1
    key.write_bytes(right)
    again = logs.once("--max-rejected", "1000")
    assert again.code == 0, again.err
    truth = logs.truth
    assert again.json["joined"] == len(truth.joined)
    assert again.json["duplicate"] == truth.lines - truth.malformed + truth.duplicates


@pytest.mark.parametrize("side", ["primary", "foreign"])
def test_a_configuration_that_reads_nothing_is_refused(logs: Logs, side: str) -> None:
    logs.write()
    wrong = ("--set", f'join.clicks.{side}.key="qury_id"')
    refused = logs.once(*wrong)
    assert refused.code == 2
    assert f"{side} records can be read with this configuration" in refused.err
    assert "'qury_id' is missing" in refused.err
    logs.finish()  # nothing was registered under the wrong one


def test_without_any_primary_record_nothing_is_called_unmatched(logs: Logs) -> None:
    logs.write()
    queries = logs.primary / "queries.log"
    data = queries.read_bytes()
    queries.unlink()
    refused = logs.once()
    assert refused.code == 1
    assert "no primary record is readable" in refused.err
    queries.write_bytes(data)
    logs.finish()


def test_services_with_another_key_do_not_start(tmp_path: Path) -> None:
    from photon.lab.demo.deployment import DemoDeployment, Shape
    from tests.integration.commands import running, until

    deployment = DemoDeployment(tmp_path, Shape(datacentres=("east",), joiners=1, round_trip_s=None)).deployment
    replicas = [service for service in deployment.services() if service.name.startswith("registry")]
    running_all = [running(*service.arguments[:-1], log=tmp_path / f"{n}.log") for n, service in enumerate(replicas)]
    with running_all[0], running_all[1], running_all[2]:
        until(lambda: "registry.ready" in (tmp_path / "0.log").read_text(), 30, "the registry is ready")
        (tmp_path / "key").write_bytes(bytes(32))
        for noun in ("eventstore", "joiner", "dispatcher"):
            refused = photon("serve", noun, "--config", deployment.file, timeout=60)
            assert refused.code == 2, refused.err
            assert "differs from the one that the registry was filled with" in refused.err
