"""Common behaviour of all commands that change a running deployment: dry run, question, refusal."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from photon.cli import heads
from photon.cli.main import main
from tests.unit.refusals import photon, refused
from tests.unit.supervision.deployments import write_deployment

# Irreversible commands -> their shortest arguments besides --config. ``slot retire`` first checks whether it was
# begun: tests/unit/cli/test_slot.py.
FOR_GOOD: dict[str, list[str]] = {
    "dispatcher skip": ["--datacentre", "east", "--to", "now"],
    "registry replace": ["r1", "r2"],
    "registry restore": ["--open"],
    "eventstore forget": ["--all"],
    "verifier acknowledge": [],
    "spark recover": ["--report", "nowhere"],
}
ASK = {*FOR_GOOD, "slot retire"}
# Commands that change a running deployment reversibly.
BACK = {
    *(f"dispatcher {word}" for word in ("replay", "pause", "resume")),
    "registry transfer-leader",
    "registry reshard",
    "restart",
    "hold",
    "joiner drain",
    "release",
    "reload",
    "down",
}


def leaves(command: click.Command = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, with their words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, f"{path} {name}".strip())


COMMANDS = dict(leaves())


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_dry_run_and_yes_stand_on_exactly_those_that_change() -> None:
    assert {name for name, command in COMMANDS.items() if "--yes" in options(command)} == ASK
    shown_first = {name for name, command in COMMANDS.items() if "--dry-run" in options(command)}
    assert shown_first == ASK | BACK | {"chaos run", "compute rescale", "spark acknowledge"}
    assert not [name for name, command in COMMANDS.items() if "--apply" in options(command)]


FAULTS = {"chaos run", "chaos fault", "wan set"}
STARTS = {"up"}


def test_whatever_changes_is_audited() -> None:
    audited = {name for name, command in COMMANDS.items() if hasattr(command.callback, "photon_audited")}
    assert audited == ASK | BACK | FAULTS | STARTS


# Run until SIGTERM, and their log is JSON; or show the commands that they run.
NOT_JSON = {name for name in COMMANDS if "serve" in name.split()} | {"spark demo"}
# Commands whose --config is not the file that PHOTON_CONFIG names.
NOT_CONFIG = {
    "join": "its --config says how logs are read, and it makes a deployment of its own",
    "chaos run": "without --config it makes a deployment of its own: nobody breaks his by a variable",
}


def test_one_grammar_for_all() -> None:
    """-o json, an example, and exit codes where 3 is one."""
    formats = {name for name, command in COMMANDS.items() if "-o" in options(command)}
    assert set(COMMANDS) - formats == NOT_JSON
    for name, command in COMMANDS.items():
        said = command.help or ""
        assert f"photon {name}" in said.partition("Example")[2], name
        assert command.callback is not None
        code = inspect.getsource(inspect.unwrap(command.callback))
        assert "ATTENTION" not in code or "Exit codes:" in said, name
        assert "--deployment" not in options(command), name


def test_the_deployment_file_may_stand_in_the_environment() -> None:
    with_config = {name for name, command in COMMANDS.items() if "--config" in options(command)}
    for name in with_config - set(NOT_CONFIG):
        [option] = [each for each in COMMANDS[name].params if "--config" in each.opts]
        with click.Context(COMMANDS[name]) as context:
            assert heads.VARIABLE in context.command.get_help(context), name
        assert option.envvar == heads.VARIABLE or option.callback is not None, name


def test_what_is_named_counts_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(heads.VARIABLE, str(tmp_path / "default.toml"))

    def said(*arguments: object) -> str:
        return refused(photon(*arguments))

    assert "default.toml" in said("status", "registry")
    assert "other.toml" in said("status", "registry", "--config", tmp_path / "other.toml")
    assert "default.toml" in said("status", "processes")
    assert "other.toml" in said("status", "processes", "--config", tmp_path / "other.toml")
    assert "default.toml" in said("restart", "joiner")
    (tmp_path / "other.toml").write_text("")
    words = (str(tmp_path / "other.toml"), "joiner")
    assert heads.file_and_names(words, "restart") == (tmp_path / "other.toml", ("joiner",))
    assert "default.toml" in said("status", "wan")
    assert "--control: " in said("status", "wan", "--control", "nowhere")
    assert "default.toml" not in photon("status", "ledger", tmp_path).output
    monkeypatch.delenv(heads.VARIABLE)
    assert "PHOTON_CONFIG" in said("restart")


@pytest.mark.parametrize("name", sorted(FOR_GOOD))
def test_what_cannot_be_taken_back_is_refused_where_nobody_can_be_asked(name: str, tmp_path: Path) -> None:
    config = tmp_path / "photon.toml"
    config.write_text('[registry.replicas.r1]\naddress = "127.0.0.1:1"\ndirectory = "r1"\n')
    said = refused(photon(*name.split(), *FOR_GOOD[name], "--config", config))
    assert "cannot be undone: confirm with --yes, or preview it with --dry-run" in said


def test_an_order_for_a_join_on_spark_that_never_began_is_refused(tmp_path: Path) -> None:
    config = write_deployment(tmp_path)
    own = '[datacentre.east]\npipeline = "spark"\napart.spark = "127.0.0.1:2"\n'
    config.write_text(config.read_text().replace("[datacentre.east]\n", own))
    order = ("replay", "--from", "2h", "--to", "1h", "--config", config, "--datacentre", "east")
    assert "no join on Spark has begun here" in refused(photon("dispatcher", *order), 1)


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_a_person_is_asked(said: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "can_be_asked", lambda: True)
    config = write_deployment(tmp_path)
    command = ["verifier", "acknowledge", "--datacentre", "east", "--config", str(config)]
    done = CliRunner().invoke(main, command, input=said)
    assert done.exit_code == code, done.output
    assert "Acknowledge 0 open alarms? [y/N]" in done.stderr
    assert done.stdout == ("0 alarms acknowledged\n" if code == 0 else "")
