"""``photon help``: every counter that a screen shows is explained, and so is every metric and command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from photon.cli.main import main
from photon.config.metrics.table import METRICS
from photon.fleet.counters import COUNTERS
from tests.unit.refusals import photon, refused


def helped(*names: str) -> Result:
    found = CliRunner().invoke(main, ["help", *names])
    assert found.exit_code == 0, found.output
    return found


@pytest.mark.parametrize("name", COUNTERS)
def test_every_counter_of_the_ledger_is_explained(name: str) -> None:
    assert helped(name).output.startswith(f"{name} (lines): {COUNTERS[name].removesuffix(':')}; ")


def test_every_metric_is_found_by_its_name_and_its_short_name() -> None:
    for name, metric in METRICS.items():
        short = name.removeprefix("photon_").removesuffix("_total")
        for given in (name, short):
            meanings = json.loads(helped(given, "-o", "json").output)["meanings"]
            assert metric.help.rstrip(".") in [each["meaning"] for each in meanings], given


def test_a_command_is_explained_by_its_own_help() -> None:
    assert helped("slot", "retire").output.startswith("Usage: photon slot retire [OPTIONS] NAME")
    assert helped().output.startswith("Usage: photon [OPTIONS] COMMAND")
    both = helped("read").output
    assert both.startswith("read (lines): ")
    assert "Usage: photon read" in both


@pytest.mark.parametrize(
    ("name", "hint"),
    [("unmached", "did you mean unmatched?"), ("dokter", "did you mean doctor?"), ("zzz", "see photon --help")],
)
def test_an_unknown_name_is_one_line_with_the_likely_one(name: str, hint: str) -> None:
    assert hint in refused(photon("help", name))
