"""Output of ``photon status verifier`` from files alone, while nothing runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from photon.config.disk import RealDisk
from photon.verifier.alarms import AlarmKind, AlarmLog
from photon.verifier.checker import CheckedFile
from photon.verifier.owned_ids import OwnedFile
from tests.unit.refusals import photon, refused
from tests.unit.supervision.deployments import write_deployment

ATTENTION = 3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """East's first slot has published 1000 bytes, of which 600 are cleared and 400 checked."""
    file = write_deployment(tmp_path)
    state = tmp_path / "east/state/slots/east-1"
    (state / "verifier").mkdir(parents=True)
    name = "joined/east-1-000001.jsonl"
    files = {"version": 1, "slot": "east-1", "files": {name: 1000}, "rolled": []}
    (state / "durable.json").write_bytes(msgspec.json.encode(files))
    own = state / "verifier"
    (own / "cleared.json").write_bytes(msgspec.json.encode({"version": 1, "files": {name: 600}}))
    checked = CheckedFile(places={"joined": (1, 400)}, lines=2, unverifiable=1, gone=["clicks.log.9"])
    (own / "checked.json").write_bytes(msgspec.json.encode(checked))
    (own / "owned.json").write_bytes(msgspec.json.encode(OwnedFile(at_ns=5, ids=7, since_ns={1 << 40: 5})))
    return file


def run(*arguments: str | Path) -> Result:
    noun, verb = ("status", "verifier") if arguments[0] == "status" else ("verifier", str(arguments[0]))
    return photon(noun, verb, *arguments[1:])


def test_how_far_each_slot_is_verified(file: Path) -> None:
    result = run("status", "--config", file, "--datacentre", "east", "-o", "json")
    assert result.exit_code == ATTENTION  # nothing runs
    said = json.loads(result.output)
    first, second = said["slots"]
    assert said["verifier"] is None
    assert (first["slot"], first["state"], second["slot"], second["state"]) == ("east-1", "down", "east-2", "missing")
    lengths = [first[key] for key in ("published", "cleared", "checked", "behind")]
    assert lengths == [1000, 600, 400, 600]
    assert [first[key] for key in ("owned", "checked_lines", "unverifiable", "gone")] == [7, 2, 1, ["clicks.log.9"]]
    assert first["oldest_owned_s"] > 0
    assert (second["owned"], second["oldest_owned_s"]) == (0, None)
    table = run("status", "--config", file, "--datacentre", "east").output
    assert "no verifier runs here" in table
    assert "1 line whose source log is gone (clicks.log.9)" in table


def test_alarms_are_shown_until_they_are_acknowledged(file: Path) -> None:
    own = file.parent / "east/state/slots/east-1/verifier"
    AlarmLog(RealDisk(), own, "east-1").tell(AlarmKind.TORN, "9 bytes", 1, file="joined/x", offset=3)
    shown = run("status", "--config", file, "--datacentre", "east").output
    assert "east-1: torn at joined/x:3: 9 bytes; check this disk" in shown
    where = ("--config", file, "--datacentre", "east")
    assert run("acknowledge", *where, "--slot", "east-2", "--yes").output == "0 alarms acknowledged\n"
    assert run("acknowledge", *where).exit_code == 2
    assert run("acknowledge", *where, "--dry-run").output == "1 alarm would be acknowledged\n"
    assert run("acknowledge", *where, "--yes").output == "1 alarm acknowledged\n"
    assert "torn" not in run("status", *where).output


def test_a_damaged_file_is_told_in_its_slot_s_row(file: Path) -> None:
    path = file.parent / "east/state/slots/east-1/verifier/checked.json"
    path.write_bytes(b"{")
    result = run("status", "--config", file, "--datacentre", "east")
    assert result.exit_code == ATTENTION
    assert f"east-1: {path}: unreadable" in result.output


def test_which_datacentre(file: Path) -> None:
    assert "choose one with --datacentre" in refused(run("status", "--config", file))
