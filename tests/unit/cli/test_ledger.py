"""``photon status ledger``: where it looks, its message when there is none, and its table in a pipe."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from photon.dispatcher.ledger import HOUR_NS, Verdict, cell
from photon.dispatcher.state import Changes, State
from photon.supervision.ports import free_ports
from tests.unit.refusals import photon, refused

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
address = "127.0.0.1:7201"
"""


def ledger(*arguments: str | Path) -> Result:
    return photon("status", "ledger", *arguments)


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
    heads, *ends = [line.split()[-5:] for line in shown.output.splitlines()]
    assert heads == ["reread", "wasted", "retimed", "ambiguous", "unpaired"]
    assert ends == [["7", "5", "0", "0", "0"]] * 2
    assert [line for line in shown.output.splitlines() if line != line.rstrip()] == []


def test_no_ledger_is_said_with_where_it_is(deployment: Path) -> None:
    for arguments, says in (
        ([deployment / "out"], "a deployment's ledger is in the pipeline's state directory"),
        ([deployment / "state"], "no ledger; give an output"),
        ([], "or --config FILE"),
        (["--datacentre", "east"], "or --config FILE"),
        (["--config", deployment / "photon.toml", "--datacentre", "west"], "there are: east"),
        ([deployment, "--config", deployment / "photon.toml"], "give either NAME, or --config"),
    ):
        assert says in refused(ledger(*arguments))
    (deployment / "state" / "east" / "dispatcher.db").unlink()
    assert "east has never run here" in refused(ledger("--config", deployment / "photon.toml"))


WEST = DEPLOYMENT[DEPLOYMENT.index("[datacentre.east]") :].replace("east", "west").replace('"out"', '"out-west"')
WEST = WEST.replace(":7201", ":7301").replace(":7202", ":7302")


def with_west(deployment: Path, text: str = WEST) -> Path:
    file = deployment / "photon.toml"
    file.write_text(DEPLOYMENT.replace("time =", 'id = "c"\ntime =') + text)
    return file


def west_has_read(deployment: Path, **counts: int) -> None:
    state = State(deployment / "state" / "west" / "dispatcher.db")
    state.commit(Changes(cells={cell(HOUR_NS, Verdict[name.upper()]): count for name, count in counts.items()}))
    state.close()


def test_all_datacentres_and_what_they_made_together(deployment: Path) -> None:
    file = with_west(deployment)
    west_has_read(deployment, read=1240, unmatched=6, elsewhere=1234)
    told = json.loads(ledger("--config", file, "-o", "json").output)
    assert {name: each["total"]["read"] for name, each in told["datacentres"].items()} == {"east": 1234, "west": 1240}
    made = {"joined": 1234, "filtered": 0, "unmatched": 6}
    assert told["made"] == {"total": made, "hours": {"1970-01-01T01": made}}
    assert (told["missing"], told["balances"]) == ({}, True)
    shown = ledger("--config", file)
    assert shown.exit_code == 0
    rows = [line.split() for line in shown.output.splitlines()]
    assert rows[1][:4] == ["1970-01-01T01", "east", "1,234", "1,234"]
    assert rows[2][0] == "west"
    assert rows[3] == ["all", "1,234", "0", "6"]
    assert rows[6] == rows[3]
    assert "count it as elsewhere" in shown.output
    one = json.loads(ledger("--config", file, "--datacentre", "west", "-o", "json").output)
    assert one == told["datacentres"]["west"]


def test_a_datacentre_that_cannot_be_read_is_named(deployment: Path) -> None:
    [port] = free_ports(1)
    file = with_west(deployment, WEST + f'apart.dispatcher = "127.0.0.1:{port}"\n')
    shown = ledger("--config", file, "-o", "json")
    told = json.loads(shown.stdout)
    assert (shown.exit_code, list(told["datacentres"])) == (0, ["east"])
    assert f"no dispatcher answers at 127.0.0.1:{port}" in told["missing"]["west"]
    assert "datacentre west: its state is not on this machine" in shown.stderr
    (deployment / "state" / "east" / "dispatcher.db").unlink()
    refused(ledger("--config", file))


def test_one_that_does_not_balance_is_named(deployment: Path) -> None:
    file = with_west(deployment)
    west_has_read(deployment, read=3, joined=2)
    shown = ledger("--config", file, "-o", "json")
    assert (shown.exit_code, json.loads(shown.stdout)["balances"]) == (3, False)
    assert "does not balance in 1970-01-01T01 of west" in shown.stderr


def test_watching_in_a_pipe_is_a_line_each_time(deployment: Path) -> None:
    file = with_west(deployment)
    west_has_read(deployment, read=1234, elsewhere=1234)
    command = [sys.executable, "-m", "photon", "status", "ledger", "--config", str(file), "--watch", "--every", "0.1"]
    with subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        west_has_read(deployment, read=1, joined=1)
        while (last := json.loads(process.stdout.readline()))["made"]["total"]["joined"] != 1235:
            assert last["datacentres"] == first["datacentres"]
        assert last["at"] > first["at"]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr is not None
        assert (process.wait(20), process.stderr.read()) == (0, b"")


def test_watching_ends_with_its_reader(deployment: Path) -> None:
    command = [sys.executable, "-m", "photon", "status", "ledger", str(deployment / "state" / "east"), "--watch"]
    with subprocess.Popen([*command, "--every", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"hour (UTC)" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert (process.wait(20), process.stderr.read()) == (0, b"")
