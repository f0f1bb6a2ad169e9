"""Checks and preparations of ``photon up`` before it starts anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from photon.cli.config import checked
from photon.cli.main import main
from photon.config.errors import UsageError
from photon.supervision.states import ServiceState, summary
from photon.supervision.up import check_runnable, make_directories
from tests.unit.supervision.deployments import example_settings, write_deployment

USAGE = 2


@dataclass
class Said:
    code: int
    line: str


def _up(file: Path, *more: str) -> Said:
    result = CliRunner().invoke(main, ["up", str(file), *more])
    [line] = result.output.strip().splitlines()
    return Said(result.exit_code, line)


def test_a_key_that_is_missing_is_not_made(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    (tmp_path / "key").unlink()
    said = _up(file)
    assert said.code == USAGE
    assert f"head -c 32 /dev/urandom > {tmp_path / 'key'}" in said.line
    assert not (tmp_path / "key").exists()
    assert not (tmp_path / ".photon-run").exists()


def test_log_directories_that_are_missing_are_one_line(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    for name in ("queries", "clicks"):
        (tmp_path / "east" / name).rmdir()
    said = _up(file)
    assert said.code == USAGE
    assert f"the log directory {tmp_path / 'east' / 'queries'}" in said.line
    assert f"the log directory {tmp_path / 'east' / 'clicks'}" in said.line


def test_a_table_of_hbase_may_be_there(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    file.write_text(file.read_text() + '[datacentre.east.hbase]\nthrift = "127.0.0.1:1"\n')
    found = checked(file)
    check_runnable(file, found.settings, found.missing)
    told = CliRunner().invoke(main, ["doctor", "config", "--config", str(file), "-o", "json"])
    assert json.loads(told.output)["notes"] == found.hints != []


def test_a_file_that_is_wrong_is_one_line(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    file.write_text(file.read_text().replace("unmatched_after", "unmatched_aftr"))
    said = _up(file)
    assert (said.code, "unmatched_aftr: unknown key" in said.line) == (USAGE, True)
    assert _up(tmp_path / "none.toml").code == USAGE
    assert "requires --detach" in _up(file, "-o", "json").line


def test_what_cannot_run_is_refused() -> None:
    settings = example_settings()
    file = Path("f.toml")
    check_runnable(file, settings, [])
    with pytest.raises(UsageError, match=r"f\.toml: has no \[datacentre\.NAME\]"):
        check_runnable(file, msgspec.structs.replace(settings, datacentre={}), [])
    registry = msgspec.structs.replace(settings.registry, replicas={})
    with pytest.raises(UsageError, match=r"registry\.replicas is empty"):
        check_runnable(file, msgspec.structs.replace(settings, registry=registry), [])
    nowhere = {name: msgspec.structs.replace(r, region="") for name, r in settings.registry.replicas.items()}
    registry = msgspec.structs.replace(settings.registry, replicas=nowhere)
    with pytest.raises(UsageError, match=r"replicas\.r3: has no region"):
        check_runnable(file, msgspec.structs.replace(settings, registry=registry), [])
    check_runnable(file, msgspec.structs.replace(settings, registry=registry, wan=None), [])


def test_what_the_processes_write_in_is_made(tmp_path: Path) -> None:
    make_directories(example_settings(), tmp_path)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not list(path.iterdir()))
    assert found == ["centre/registry", "east/output", "east/registry", "east/state",
                     "west/output", "west/registry", "west/state"]  # fmt: skip
    make_directories(example_settings(), tmp_path)
    (tmp_path / "east" / "state").rmdir()
    (tmp_path / "east" / "state").write_text("")
    with pytest.raises(UsageError, match="east/state: cannot be created"):
        make_directories(example_settings(), tmp_path)


def test_parts_of_one_machine_share_no_directory(tmp_path: Path) -> None:
    settings = example_settings()
    west = msgspec.structs.replace(settings.datacentre["west"], output="east/../east/output")
    shared = msgspec.structs.replace(settings, datacentre=settings.datacentre | {"west": west})
    with pytest.raises(UsageError, match=r"output: is a directory of both datacentre\.east and datacentre\.west"):
        make_directories(shared, tmp_path)


def test_states_in_words() -> None:
    up = ServiceState(name="a", datacentre="", pid=1, state="up")
    again = ServiceState(name="b", datacentre="", pid=None, state="restarting", restart_in_s=2.2)
    bad = ServiceState(name="c", datacentre="", pid=None, state="failing", restart_in_s=29.6, detail="no key")
    tried = ServiceState(name="c", datacentre="", pid=1, state="failing", detail="no key")
    assert [each.words for each in (up, again, bad, tried)] == [
        "up", "restarting in 2 s", "failing, again in 30 s", "failing",
    ]  # fmt: skip
    assert summary([up, up]) == "all 2 processes are up"
    assert summary([up, bad]) == "1 of 2 processes are not up: c is failing, again in 30 s: no key"
