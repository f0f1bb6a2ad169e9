"""The audit of commands: who did what, including failed and killed ones; nothing about a dry run, no secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from photon.cli import audited
from tests.unit.refusals import photon, refused
from tests.unit.supervision.deployments import write_deployment


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(audited.VARIABLE, raising=False)
    return write_deployment(tmp_path)


def acknowledge(file: Path, *more: str) -> Result:
    return photon("verifier", "acknowledge", "--config", file, "--datacentre", "east", *more)


def told(file: Path, *more: str) -> list[dict[str, Any]]:
    shown = photon("status", "audit", "--config", file, "-o", "json", *more)
    assert shown.exit_code == 0, shown.output
    found: list[dict[str, Any]] = json.loads(shown.stdout)["commands"]
    return found


def test_what_was_done_is_told_with_who_and_how_it_ended(file: Path) -> None:
    assert acknowledge(file, "--yes", "--set", "registry.key=secret").exit_code == 2
    assert acknowledge(file, "--yes").exit_code == 0
    failed, done = told(file)
    assert (failed["outcome"], failed["exit_code"]) == ("refused", 2)
    assert failed["arguments"][-2:] == ["--set", "registry.key=…"]
    assert "registry.key" in failed["error"]
    assert (done["command"], done["outcome"], done["pid"]) == ("verifier acknowledge", "done", os.getpid())
    assert done["arguments"] == [
        "verifier", "acknowledge", "--config", str(file), "--datacentre", "east", "--yes",
    ]  # fmt: skip
    assert done["user"]
    assert done["host"]
    assert done["at"] <= done["ended_at"]
    assert done["deployment"] == str(file)
    assert [each["outcome"] for each in told(file, "--limit", "1")] == ["done"]
    table = photon("status", "audit", "--config", file).stdout
    assert "--set registry.key=…" in table
    assert "refused: " in table


def test_a_dry_run_leaves_no_line(file: Path) -> None:
    assert acknowledge(file, "--dry-run").exit_code == 0
    assert not (file.parent / audited.NAME).exists()
    assert "no command recorded yet" in photon("status", "audit", "--config", file).stdout


def test_without_a_line_nothing_is_done(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(audited.VARIABLE, str(file.parent / "nowhere" / "audit.jsonl"))
    said = refused(acknowledge(file, "--yes"), 1)
    assert "so nothing was done; set PHOTON_AUDIT to a file that you may write" in said


def test_one_that_was_killed_is_seen_and_damage_is_passed_over(file: Path) -> None:
    acknowledge(file, "--yes")
    path = file.parent / audited.NAME
    begun = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(begun + b'{"torn": ' + b"\n[]\n\xff\n")
    [killed] = told(file)
    assert (killed["outcome"], killed["ended_at"], killed["exit_code"]) == ("begun", None, None)


def test_the_file_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited, "FILE_BYTES", 3_000)
    for _ in range(20):
        assert acknowledge(file, "--yes").exit_code == 0
    path = file.parent / audited.NAME
    assert path.stat().st_size <= 3_000
    assert audited.old(path).stat().st_size <= 3_000
    assert 2 <= len(told(file)) < 20


def test_no_secret_is_written() -> None:
    words = ["spark", "--spark", "spark.token=x=y", "--set=a.b=c", "--set", "key", "plain=1"]
    assert audited.hidden(words) == ["spark", "--spark", "spark.token=…", "--set=a.b=…", "--set", "key=…", "plain=1"]
