"""Operators' mistakes on the command line are reported in one line, before anything is asked or touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.refusals import photon, refused

FILE = """
[registry]
tolerate = 0
[registry.replicas.r1]
address = "127.0.0.1:1"
directory = "r1"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "photon.toml"
    file.write_text(FILE)
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["transfer-leader", "--config", "FILE"], 2, "give either --group or --from"),
        (["transfer-leader", "--config", "FILE", "--group", "1", "--from", "r1"], 2, "give either --group or"),
        (["transfer-leader", "--config", "FILE", "--group", "1", "--to", "r9"], 2, "r9: not in [registry.replicas]"),
        (["transfer-leader", "--config", "FILE", "--from", "r1", "--to", "r1"], 2, "the same replica"),
        (
            ["restore", "--config", "FILE"],
            2,
            "give only one of BACKUP, --register-again, --open and --accept-boundary",
        ),
        (["restore", "--config", "FILE", "b", "--open"], 2, "give only one of BACKUP"),
        (["restore", "--config", "FILE", "--open", "--replica", "r1"], 2, "--replica requires a BACKUP"),
        (["restore", "--config", "FILE", "--accept-boundary", "soon", "--dry-run"], 2, "or now"),
        (["restore", "--config", "FILE", "b", "--replica", "r9", "--yes"], 2, "there are: r1"),
        (["restore", "--config", "FILE", "nowhere", "--dry-run"], 1, "has no manifest.json"),
        (["verify"], 2, "give either a BACKUP or --config FILE"),
        (["verify", "nowhere"], 1, "has no manifest.json"),
        (
            ["replace", "r1", "r2", "--config", "FILE", "--yes", "--wait"],
            2,
            "--wait cannot be combined with --dry-run",
        ),
        (["replace", "r9", "r2", "--config", "FILE", "--dry-run"], 1, "r2: first replace the table"),
        (["replace", "r1", "r2", "--config", "FILE", "--wait"], 1, "replace the table of r1"),
        (["restore", "--register-again", "--config", "FILE", "--yes"], 2, "no pipeline, so no outputs"),
        (["restore", "--register-again", "--config", "FILE"], 2, "cannot be undone"),
        (["restore", "--open", "--config", "FILE", "--datacentre", "x"], 2, "--datacentre requires --register-a"),
        (["verify", "backup", "--shards"], 2, "--shards requires --config"),
    ],
)
def test_usage(config: str, arguments: list[str], code: int, said: str) -> None:
    result = photon("registry", *(config if each == "FILE" else each for each in arguments))
    assert refused(result, code).startswith("photon: ")
    assert (said in result.stderr, result.stdout) == (True, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["registry"], "give the deployment file with --config"),
        (["registry", "--config", "FILE", "--set", "registry.replicas={}"], "has no [registry.replicas.NAME]"),
        (["registry", "r1", "--config", "FILE"], "r1 cannot be used with status registry"),
        (["members", "--wait", "--config", "FILE"], "--wait cannot be used with status members"),
        (["lag", "--run", "run", "--config", "FILE"], "--run cannot be used with status lag"),
        (["wan", "--control", "127.0.0.1:1", "--config", "FILE"], "give either --control HOST:PORT or"),
        (["nothing", "--config", "FILE"], "'nothing' is not one of"),
    ],
)
def test_parts_of_status(config: str, arguments: list[str], said: str) -> None:
    assert said in refused(photon("status", *(config if each == "FILE" else each for each in arguments)))
