from pathlib import Path

import pytest
from click.testing import CliRunner

from photon.cli.main import main

EXAMPLES = sorted((Path(__file__).parents[3] / "config" / "examples").glob("*.toml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_good(example: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "config", "--config", str(example)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["doctor", "config", "--config", "nowhere.toml"], 2, "nowhere.toml: no such file"),
        (["joi"], 2, "No such command 'joi'"),
        (["doctor", "config"], 2, "name the deployment file with --config"),
    ],
)
def test_errors_are_one_line_with_an_exit_code(arguments: list[str], code: int, said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code
    assert said in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_wrong_side_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[join.a.primary]\nformat = "jsonl"\nkey = "k"\n[join.a.foreign]\nformat = "jsnl"\nkey = "k"\n')
    result = CliRunner().invoke(main, ["doctor", "config", "--config", str(path)])
    assert result.exit_code == 2
    assert "join.a.foreign" in result.output
    assert len(result.output.strip().splitlines()) == 1
