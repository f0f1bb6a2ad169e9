"""photon sink parquet: options that are not given are the directory's."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from photon.cli.main import main
from tests.unit.outputs.helpers import written_output


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def line(number: int) -> bytes:
    said = {"event_id": f"c{number}", "key": "k", "event_time_ns": 0, "foreign": {"n": number}, "primary": {}}
    return json.dumps(said | {"source": {"file": "a.log", "offset": number}, "token": "0a"}).encode() + b"\n"


def test_an_option_alone_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    slot, into = written_output(tmp_path), tmp_path / "lake"

    def run(number: int, *options: str) -> Result:
        slot.append(1, line(number))
        command = ["sink", "parquet", str(slot.place.output), "--into", str(into), *options]
        return CliRunner().invoke(main, command)

    for number, options in enumerate([["--columns", "flat", "--partition", "hour"], ["--partition", "hour"], []], 1):
        result = run(number, *options)
        assert (result.exit_code, result.output) == (0, "1 records in 1 files\n")
    result = run(4, "--columns", "struct")
    assert result.exit_code == 2
    assert "was begun with columns flat; this run wants columns struct" in result.output
