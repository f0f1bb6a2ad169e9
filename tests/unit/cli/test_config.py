from pathlib import Path

import pytest

from tests.deployments import write
from tests.unit.refusals import photon, refused

EXAMPLES = sorted((Path(__file__).parents[3] / "config" / "examples").glob("*.toml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_good(example: Path) -> None:
    result = photon("doctor", "config", "--config", example)
    assert result.exit_code == 0, result.output


def test_parts_that_call_an_adapter_of_users_are_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from tests.unit.eventstore.helpers import LineAdapter as Lines\n")
    east = '[datacentre.east]\njoin = "j"\nprimary = "p"\nforeign = "f"\naddress = "h:7100"\n'
    file = write(tmp_path, '[join.j]\nadapter = "own.py:Lines"\n', east)
    said = photon("doctor", "config", "--config", file).output
    assert "datacentre east: joiner, dispatcher, eventstore, verifier run as separate processes" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doctor", "config", "--config", "nowhere.toml"], "nowhere.toml: no such file"),
        (["joi"], "No such command 'joi'. Did you mean 'join' or 'joiner'?"),
        (["slot", "retire", "--dry_run"], "No such option '--dry_run'. Did you mean '--dry-run'?"),
        (["slot", "retire", "-n"], "No such option '-n'. Did you mean '--dry-run'?"),
        (["slot", "retire", "--force"], "No such option '--force'. Did you mean '--yes'?"),
        (["status", "--json"], "Did you mean '-o json'?"),
        (["slot", "--dry-run", "retire"], "write it after the command that it belongs to"),
        (["status", "procesess"], "Did you mean 'processes'?"),
        (["doctor", "config"], "give the deployment file with --config"),
        (["doctor", "config", "--config", "FILE"], "join.a.foreign"),
    ],
)
def test_errors_are_one_line_with_an_exit_code(tmp_path: Path, arguments: list[str], said: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[join.a.primary]\nformat = "jsonl"\nkey = "k"\n[join.a.foreign]\nformat = "jsnl"\nkey = "k"\n')
    assert said in refused(photon(*(path if each == "FILE" else each for each in arguments)))
