"""``photon ledger``: where it looks, what it says when there is none, and how its table looks in a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from photon.cli.main import main
from photon.dispatcher.ledger import HOUR_NS, Verdict, cell
from photon.dispatcher.state import Changes, State

DEPLOYMENT = """
key_file = "key"
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
time = { field = "t", unit = "s" }
[registry.replicas.r1]
address = "127.0.0.1:7101"
directory = "r1"
[datacentre.east]
join = "clicks"
primary = "q"
foreign = "c"
output = "out"
state = "state/east"
eventstore = "127.0.0.1:7201"
joiners.east-1.address = "127.0.0.1:7202"
"""


def ledger(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["ledger", *map(str, arguments)])


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    (tmp_path / "photon.toml").write_text(DEPLOYMENT)
    (tmp_path / "out" / "joined").mkdir(parents=True)
    state = State(tmp_path / "state" / "east" / "dispatcher.db")
    cells = {cell(HOUR_NS, verdict): 1234 for verdict in (Verdict.READ, Verdict.JOINED)}
    state.commit(Changes(cells=cells | {cell(HOUR_NS, Verdict.WASTED): 5, cell(HOUR_NS, Verdict.REREAD): 7}))
    state.close()
    return tmp_path


def test_a_deployment_s_ledger_by_its_file_and_by_its_state(deployment: Path) -> None:
    by_state = ledger(deployment / "state" / "east", "-o", "json")
    total = json.loads(by_state.output)["total"]
    assert [total[name] for name in ("joined", "reread", "wasted")] == [1234, 7, 5]
    for more in ((), ("--datacentre", "east")):
        assert ledger("--config", deployment / "photon.toml", *more, "-o", "json").output == by_state.output


def test_the_table_has_no_spaces_at_the_lines_ends(deployment: Path) -> None:
    shown = ledger(deployment / "state" / "east")
    assert shown.exit_code == 0
    assert "1970-01-01T01  1,234   1,234" in shown.output
    assert [line.split()[-2:] for line in shown.output.splitlines()] == [["reread", "wasted"], ["7", "5"], ["7", "5"]]
    assert [line for line in shown.output.splitlines() if line != line.rstrip()] == []


def test_no_ledger_is_said_with_where_it_is(deployment: Path) -> None:
    for arguments, says in (
        ([deployment / "out"], "a deployment's is in the pipeline's state directory"),
        ([deployment / "state"], "no ledger there; name an output"),
        ([], "or --config FILE"),
        (["--datacentre", "east"], "or --config FILE"),
        (["--config", deployment / "photon.toml", "--datacentre", "west"], "there are: east"),
        ([deployment, "--config", deployment / "photon.toml"], "name one of them"),
    ):
        refused = ledger(*arguments)
        assert (refused.exit_code, says in refused.output) == (2, True), refused.output
        assert refused.output.count("\n") == 1
    (deployment / "state" / "east" / "dispatcher.db").unlink()
    refused = ledger("--config", deployment / "photon.toml")
    assert (refused.exit_code, "east has not begun here" in refused.output) == (2, True)
