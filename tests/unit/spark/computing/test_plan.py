"""Computations impossible on Spark are refused by name before anything starts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from photon.computing.journal import Status, write_status
from photon.config.disk import RealDisk
from tests.unit.refusals import photon, refused

FILE = """\
from photon.computing import Computation, Limits, Topology


class Sum(Computation):
    {attribute}

    def process_record(self, ctx, record):
        {code}

    def process_timer(self, ctx, timer):
        pass


class Other(Computation):
    pass


topology = Topology("test", limits=Limits({limits}))
topology.source("raw", deployment="out")
topology.add(Sum(), {{"raw": lambda record: "a"}}, [], "{watermark}")
topology.add(Other(), {{"raw": lambda record: "a"}}, [])
"""
PLAIN = {"attribute": "", "code": "ctx.set_timer('a', 1)", "limits": "", "watermark": "99%"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"code": "ctx.set_timer('a', 1); ctx.set_wall_timer('b', 2)"}, "computation sum: has both kinds of timers"),
        ({"code": "(lambda: ctx.set_wall_timer('b', 2))()"}, "computation sum: has wall-clock timers"),
        ({"attribute": "idempotent = True"}, "computation sum: has weak (idempotent) productions"),
        ({"attribute": "dedup = False"}, "computation sum: has dedup = False"),
        ({"watermark": "exact"}, "computation sum: follows the exact watermark and other the percentile"),
        ({"limits": "skew_ns=1"}, "topology test: has skew_ns"),
    ],
)
def test_what_cannot_be_had(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    (tmp_path / "out" / ".photon").mkdir(parents=True)
    file = tmp_path / "test.py"
    file.write_text(FILE.format(**PLAIN | changed))
    assert said in refused(photon("compute", "run", file, "--on", "spark", "--once"))
    assert not (tmp_path / ".photon-compute").exists()


def test_options_of_one_engine_are_refused_for_the_other(tmp_path: Path) -> None:
    file = tmp_path / "test.py"
    file.write_text(FILE.format(**PLAIN))
    for options, said in (
        (["--on", "spark", "--processes", "2"], "--processes cannot be used with --on spark"),
        (["--partitions", "2"], "--partitions cannot be used with --on here"),
    ):
        assert said in refused(photon("compute", "run", file, *options))


def test_a_state_is_of_one_engine(tmp_path: Path) -> None:
    (tmp_path / "out" / ".photon").mkdir(parents=True)
    file = tmp_path / "test.py"
    file.write_text(FILE.format(**PLAIN))
    state = tmp_path / ".photon-compute" / "test"
    state.mkdir(parents=True)
    (state / "intervals.json").write_text("{}")
    assert "without --on spark" in refused(photon("compute", "run", file, "--on", "spark"))
    (state / "intervals.json").unlink()
    (state / "spark.json").write_text("{}")
    assert "of a photon compute run --on spark" in refused(photon("compute", "run", file))


def test_its_status_is_shown_as_that_of_others(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "spark.json").write_text("{}")
    said = Status(topology="test", interval="spark", pid=1, at_ns=time.time_ns(), published_records=7)
    write_status(RealDisk(), state, said)
    done = photon("status", "compute", state, "-o", "json")
    assert (done.exit_code, '"interval":"spark"' in done.output) == (0, True)
