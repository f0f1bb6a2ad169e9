"""``photon slot``: its questions, output and exit codes; the steps are tested elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from photon.idregistry.witness import KnownSlot, WitnessLog
from photon.operations.slots import operating, sealing
from photon.operations.slots.id_list import Listed
from photon.operations.slots.inventory import OnDisk, SlotRow
from photon.operations.slots.operating import Checked
from photon.operations.slots.retiring import Report, RetiringRefused, ShardCount
from tests.unit.refusals import photon, refused

KNOWN = KnownSlot("east-1", "east", "host:1", 7, 3, False, (WitnessLog(1, 100, b"h"),))
LISTED = Listed("00" * 16, 1_763_700_000_000_000_000, "joined", "0000070000000001", "click-1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "photon.toml"
    path.write_text('[registry.replicas.r1]\naddress = "127.0.0.1:1"\ndirectory = "r1"\n')
    return path


class Deployment:
    """Stands in for the registry: the answers to the commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.report = Report("east-1", (1, 2), [ShardCount(1, 1, LISTED.event_time_ns), ShardCount(2)])
        self.report.reopened = self.report.listed = 1
        self.report.ids_path = Path("given-up.jsonl")
        self.readers = {"east": True, "west": False}
        self.slot = KNOWN
        self.carried_out = 0
        self.refused = ""
        for name in ("check", "preview", "carry_out", "dispatchers", "all_slots", "owned_by"):
            monkeypatch.setattr(operating, name, getattr(self, name))

    async def check(self, here: Any, asked: Any) -> Checked:
        if self.refused:
            raise RetiringRefused(self.refused)
        return Checked(self.slot, None)

    async def preview(self, here: Any, checked: Any, asked: Any) -> tuple[Report, list[Listed]]:
        return self.report, [LISTED]

    async def carry_out(self, here: Any, checked: Any, asked: Any, tell: Callable[[str], None]) -> Report:
        self.carried_out += 1
        tell("fenced: 1 of 2 shards")
        return self.report

    async def dispatchers(self, here: Any, slot: Any) -> dict[str, bool]:
        return self.readers

    async def all_slots(self, here: Any) -> list[SlotRow]:
        disk = OnDisk(Path("/state/east-1"), False, 10, 80, 60, 0)
        return [SlotRow("east-1", "east", KNOWN, False, disk), SlotRow("west-9", "west", None, True, None)]

    async def owned_by(self, here: Any, slot: str, wait_s: float) -> Report:
        return self.report


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(monkeypatch)


def retire(file: Path, *options: object) -> Result:
    return photon("slot", "retire", "east-1", "--config", file, *options)


def test_nothing_is_retired_without_a_word(file: Path, deployment: Deployment) -> None:
    why = "retiring slot east-1, whose disk is permanently gone, cannot be undone: confirm with --yes"
    assert why in refused(retire(file))
    assert deployment.carried_out == 0
    assert retire(file, "--yes").exit_code == 0
    assert deployment.carried_out == 1


def test_one_that_was_begun_goes_on_without_being_asked(file: Path, deployment: Deployment) -> None:
    deployment.slot = KnownSlot("east-1", "east", "host:1", 7, 3, True, ())
    assert retire(file).exit_code == 0
    assert deployment.carried_out == 1


def test_a_refusal_is_one_line_and_fails(file: Path, deployment: Deployment) -> None:
    deployment.refused = "slot east-1 is alive"
    assert refused(retire(file, "--yes"), 1) == "photon: slot east-1 is alive\n"


def test_a_dry_run_shows_all_and_changes_nothing(file: Path, deployment: Deployment, tmp_path: Path) -> None:
    ids = tmp_path / "ids.jsonl"
    done = retire(file, "--dry-run", "--ids", ids, "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert (found["dry_run"], found["ids"], found["list"][0]["event_id"]) == (True, 1, "click-1")
    assert json.loads(ids.read_bytes().splitlines()[1])["event_id"] == "click-1"
    table = retire(file, "--dry-run").output
    assert "click-1" in table
    assert "1 id would be given up; nothing was changed" in table
    assert deployment.carried_out == 0


def test_what_needs_attention_shows_in_the_exit_code(file: Path, deployment: Deployment) -> None:
    deployment.readers = {"east": False}
    done = retire(file, "--yes")
    assert done.exit_code == 3
    assert "dispatcher of east: does not answer" in done.output
    deployment.readers = {"east": True}
    deployment.report.copy = sealing.Copy(Path("/saved"), [], {"joined/east-1-000001.jsonl": 80})
    assert retire(file, "--yes").exit_code == 0
    deployment.report.copy.lacking = {"joined/east-1-000001.jsonl": 20}
    lacking = retire(file, "--yes")
    assert lacking.exit_code == 3
    assert "lacks 20 bytes that readers may have read" in lacking.output


def test_a_list_says_where_each_slot_stands(file: Path, deployment: Deployment) -> None:
    found = json.loads(photon("status", "slots", "--config", file, "-o", "json").output)["slots"]
    assert [(each["slot"], each["state"]) for each in found] == [("east-1", "orphaned"), ("west-9", "never opened")]
    assert found[0]["disk"]["cleared_bytes"] == 60
    assert "/state/east-1" in photon("status", "slots", "--config", file).output


def test_a_slot_is_shown_with_what_it_owns(
    file: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("photon.operations.slots.inventory.witness_rows", lambda disk, row: [])
    done = photon("status", "slots", "east-1", "--config", file)
    assert done.exit_code == 0
    assert "slot east-1 of datacentre east: orphaned" in done.output
    assert "incarnation 7, opened 3 times, last by host:1" in done.output
    assert photon("status", "slots", "nobody", "--config", file).exit_code == 2
