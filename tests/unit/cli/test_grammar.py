"""The tree of commands: few enough to keep in mind."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from photon.cli import serve, status
from photon.cli.main import NOUNS, TASKS, main, walk
from photon.fleet.processes import KINDS, Kind
from tests.unit.refusals import photon

EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"
LEAVES_MAX = 64
TREE = {" ".join(path[1:]): command for path, command in walk(main)}


def test_there_are_few() -> None:
    leaves = [name for name, command in TREE.items() if not isinstance(command, click.Group)]
    assert len(leaves) <= LEAVES_MAX, leaves


def test_the_help_has_each_in_one_line_under_its_task() -> None:
    lines = [(name, noun.about) for task in TASKS.values() for name, noun in task.items()]
    assert sorted(name for name, _ in lines) == sorted(NOUNS)
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).output.splitlines()
    assert all(f"{task}:" in shown for task in TASKS)
    for name, summary in lines:
        assert any(line.split() == [name, *summary.split()] for line in shown), name


def test_each_part_of_status_is_there_and_takes_what_it_says() -> None:
    known = {parameter.name for parameter in TREE["status"].params}
    for name, part in status.PARTS.items():
        module, _, function = part.function.partition(":")
        parameters = inspect.signature(getattr(importlib.import_module(f"photon.cli.{module}"), function)).parameters
        takes = set(part.takes.split())
        assert takes <= known, name
        assert takes - {"overrides", "datacentre"} == set(parameters) - {"at"}, name


def test_each_kind_of_process_is_served_and_takes_what_it_says() -> None:
    known = {parameter.name: parameter for parameter in TREE["serve"].params}
    served = {name: kind for name, kind in KINDS.items() if kind.serve}
    assert served.keys() == KINDS.keys() - {"wan"} == set(known["kind"].type.choices)  # type: ignore[attr-defined]
    for name, kind in served.items():
        module, _, coroutine = kind.serve.partition(":")
        takes = inspect.signature(getattr(importlib.import_module(module), coroutine)).parameters
        ours = set(kind.takes.split()) - {"datacentre", "name", "stages", "listen"}
        assert ours <= takes.keys() & known.keys(), name


def test_a_tenth_kind_of_process_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "print(f'{room.datacentre} keeps a tally of {room.pipeline.join}')"
    (tmp_path / "tally.py").write_text(f"async def serve_tally(room):\n    {said}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(KINDS, "tally", Kind(5, "", lambda settings: [], "tally:serve_tally", "datacentre"))  # type: ignore[arg-type]
    monkeypatch.setattr(TREE["serve"].params[0], "type", click.Choice([*KINDS]))
    monkeypatch.setattr(serve, "run", lambda serving, **_: asyncio.run(serving(asyncio.Event())))
    done = photon("serve", "tally", "--config", EXAMPLE, "--datacentre", "east")
    assert (done.exit_code, done.output) == (0, "east keeps a tally of clicks\n")
