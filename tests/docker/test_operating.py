"""An outsider's list, and the runbooks, in containers: ``make operate-test`` prints a table of gaps and verdicts.

One deployment for all of it, in this order; at the end each event is compared with the truth.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.docker.stack import ROOT, Stack
from deploy.hbase import standalone
from tests.docker.operating import Operating, filling, make_compose, prepared

GAP_S_MAX = 120.0  # of all joins together; two cores are few. The table has the figures.
pytestmark = [pytest.mark.full, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def operating(docker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operating]:
    settings = tmp_path_factory.mktemp("settings")
    settings.parent.chmod(0o755)  # pytest's own directories are its user's alone
    settings.parent.parent.chmod(0o755)
    prepared(settings)
    own = {
        "COMPOSE_PROJECT_NAME": "photonoperate", "PHOTON_STATUS_EAST": "18083", "PHOTON_STATUS_WEST": "18084",
        "PHOTON_RATE": "20", "PHOTON_SETTINGS": str(settings), "PHOTON_COMPOSE": str(settings / "docker-compose.yml"),
        "PHOTON_PROMETHEUS": "19090", "PHOTON_ALERTMANAGER": "19093",
    }  # fmt: skip
    with filling(settings) as filled, pytest.MonkeyPatch.context() as patch:
        make_compose(settings, settings / "docker-compose.yml")
        for name, value in own.items():
            patch.setenv(name, value)
        stack = Stack(print)
        made = Operating(stack, settings, filled)
        try:
            stack.build()
            stack.up()
            stack.wait_for_joins()
            yield made
        finally:
            print("\n" + made.table())
            if os.environ.get("PHOTON_DOCS"):
                made.write(ROOT / "docs" / "deployment.md")
            if not os.environ.get("PHOTON_KEEP_STACK"):
                stack.down()


@pytest.mark.parametrize(
    "what",
    [
        "leader_is_killed",
        "region_is_killed",
        "regions_are_cut",
        "majority_is_lost",
        "alerts_are_told",
        "volume_is_filled",
        "settings_are_changed",
        "volume_is_deleted_and_its_replica_replaced",
        "certificates_are_rotated",
        "image_is_upgraded",
        "backup_is_restored",
        "kafka_broker_is_killed",
    ],
)
def test_joins_flow_again_after_what_happens(operating: Operating, what: str) -> None:
    if what == "volume_is_filled" and not operating.filled:
        pytest.skip("no small disk could be made: needs root and a loop device")
    if what == "kafka_broker_is_killed" and not os.environ.get("CI") and (lacking := standalone.missing()):
        pytest.skip(f"needs a real Kafka: {lacking}")
    row = operating.happens(getattr(operating, what))
    assert row.verdict == "joins flow"
    assert row.gap_s <= GAP_S_MAX or what == "backup_is_restored"  # which stops every replica


def test_every_event_is_there_exactly_once(operating: Operating) -> None:
    found = operating.stack.verdict()
    print(f"of {found['clicks']} clicks {found['joined']} were joined, {found['unmatched']} had no query")
    assert found["problems"] == []
    assert found["joined"] > 0


def test_a_bad_file_is_one_line_before_anything_is_restarted(operating: Operating, tmp_path: Path) -> None:
    file = operating.settings / "photon.toml"
    good = file.read_text()
    began = {each["Id"]: each["State"]["StartedAt"] for each in operating.stack.containers()}
    file.write_text(good.replace("tolerate = 2", "tolerate = 9"))
    try:
        with pytest.raises(Exception, match=r"registry\.tolerate = 9"):
            operating.stack.reload()
    finally:
        file.write_text(good)
    assert {each["Id"]: each["State"]["StartedAt"] for each in operating.stack.containers()} == began
