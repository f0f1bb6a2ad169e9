"""photon sink parquet: options not given are taken from the directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.unit.cli.test_read import handlers  # noqa: F401
from tests.unit.outputs.helpers import written_output
from tests.unit.refusals import photon, refused


def line(number: int) -> bytes:
    said = {"event_id": f"c{number}", "key": "k", "event_time_ns": 0, "foreign": {"n": number}, "primary": {}}
    return json.dumps(said | {"source": {"file": "a.log", "offset": number}, "token": "0a"}).encode() + b"\n"


@pytest.mark.usefixtures("handlers")
def test_an_option_alone_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    slot, into = written_output(tmp_path), tmp_path / "lake"

    def run(number: int, *options: str) -> Result:
        slot.append(1, line(number))
        return photon("sink", "parquet", slot.place.output, "--into", into, *options)

    for number, options in enumerate([["--columns", "flat", "--partition", "hour"], ["--partition", "hour"], []], 1):
        result = run(number, *options)
        assert (result.exit_code, result.output) == (0, "1 record in 1 file\n")
    assert "was begun with columns flat, but this run has columns struct" in refused(run(4, "--columns", "struct"))


def test_a_password_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path) -> None:
    into = ["--into", "postgresql://billing:hunter2@db/shop", "--table", "clicks"]
    said = refused(photon("sink", "postgres", tmp_path, *into))
    assert "--into: contains a password" in said
    assert "PGPASSWORD" in said
    assert "hunter2" not in said
