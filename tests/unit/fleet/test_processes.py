"""One list of all processes: which are started, asked, and listening."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from photon.config.loader import load
from photon.config.settings import Part, Settings
from photon.fleet.processes import (
    DATACENTRE,
    KINDS,
    Kind,
    Process,
    asked_of,
    identities,
    listening,
    processes,
    stages,
)
from photon.supervision.deployment import Deployment
from tests.unit.supervision.deployments import EXAMPLE, TOGETHER


def test_its_own_processes_the_registry_and_the_proxy_are_asked() -> None:
    settings = load(EXAMPLE, environment={})
    found = asked_of(settings, "west")
    assert [each.title for each in found] == [
        "dispatcher west",
        "joiner west-1",
        "joiner west-2",
        "eventstore west",
        "verifier west",
        "registry r1",
        "registry r2",
        "registry r3",
        "wan gateway",
    ]
    assert (found[-1].address, found[-1].datacentre) == (settings.wan.control, "")
    assert len({each.address for each in found}) == len(found)


def test_every_process_that_listens_is_named() -> None:
    flags = ["output.copies=2", "join.clicks.identical_copies=true"]
    flags += [f'datacentre.{name}.apart.copies="127.0.0.1:99{n}0"' for n, name in enumerate(("east", "west"), 1)]
    flags += [f'compute.spend.{key}="{value}"' for key, value in
              (("file", "spend.py"), ("state", "spend"), ("address", "127.0.0.1:9930"))]  # fmt: skip
    flags += ['observe.dedup={file="dedup.py", addresses=["127.0.0.1:9950", "127.0.0.1:9951"]}']
    flags += ['sink.lake={into="s3://lake/east", datacentre="east", address="127.0.0.1:9960"}']
    flags += [f'datacentre.east.apart.{part}="127.0.0.1:{at}"' for part, at in (("status", 8080), ("cache", 9810))]
    settings = load(EXAMPLE, environment={}, flags=flags)
    everywhere = listening(settings)
    apart = KINDS.keys() - {DATACENTRE, "relay", "spark"}  # no join of the example builds on another one
    assert {each.kind for each in everywhere.values()} == apart
    assert len(everywhere) == len(processes(settings)) == 22
    started = [each for stage in stages(settings) for each in stage]
    assert sorted(each.label for each in started) == sorted(each.label for each in everywhere.values())
    assert [stage[0].kind for stage in stages(settings)] == [
        "wan", "registry", "cache", "eventstore", "joiner", "dispatcher", "compute",
    ]  # fmt: skip


def test_one_process_a_datacentre_runs_all_parts_that_are_not_apart_and_each_is_asked() -> None:
    settings = load(TOGETHER, environment={})
    own = [each for each in asked_of(settings, "east") if each.datacentre == "east" and each.kind != "registry"]
    assert [each.title for each in own] == ["dispatcher east", "joiner east-1", "eventstore east", "verifier east"]
    assert {(each.address, each.arguments) for each in own} == {("127.0.0.1:7600", None)}
    assert listening(settings)["127.0.0.1:7600"].kind == DATACENTRE
    assert listening(settings)["127.0.0.1:7601"].kind == "status"
    assert [each.label for each in stages(settings)[-1]] == ["datacentre east", "datacentre west"]
    assert identities(settings) == [
        "datacentre-east", "datacentre-west", "registry-r1", "registry-r2", "registry-r3", "wan",
        "spark-east", "spark-west", "operator",
    ]  # fmt: skip


@pytest.mark.parametrize("part", get_args(Part))
def test_each_part_is_taken_out_by_an_address_of_its_own(part: str) -> None:
    flags = ["output.copies=2", "join.clicks.identical_copies=true", f'datacentre.east.apart.{part}="h:1"']
    flags += ["datacentre.east.pipeline='spark'", "output.copies=1"] if part == "spark" else []
    flags += ['datacentre.east.foreign="kafka://k:1/clicks"'] if part == "relay" else []
    settings = load(TOGETHER, environment={}, flags=flags)
    assert part not in settings.inside("east")
    assert part in settings.inside("west") or part in ("cache", "spark", "relay")
    [found] = [each for each in processes(settings) if (each.kind, each.datacentre) == (part, "east")]
    assert (found.address, found.arguments is None) == ("h:1", False)
    assert found.identity == ("spark-east" if part == "spark" else "datacentre-east")


def test_several_joiners_and_dispatchers_are_processes_at_ports_above_their_datacentres() -> None:
    settings = load(TOGETHER, environment={}, flags=["datacentre.east.joiners=2", "datacentre.east.dispatchers=2"])
    found = {each.label: each.address for stage in stages(settings) for each in stage if each.datacentre == "east"}
    assert found == {
        "registry r1": "127.0.0.1:7501", "datacentre east": "127.0.0.1:7600",
        "joiner east-1": "127.0.0.1:7610", "joiner east-2": "127.0.0.1:7611",
        "dispatcher east 1of2": "127.0.0.1:7680", "dispatcher east 2of2": "127.0.0.1:7681",
    }  # fmt: skip


def test_a_replica_runs_in_its_datacentres_process_if_it_is_told_to() -> None:
    settings = load(TOGETHER, environment={}, flags=["registry.replicas.r1.together=true"])
    labels = [each.label for stage in stages(settings) for each in stage]
    assert labels == ["wan", "datacentre east", "registry r2", "registry r3", "datacentre west"]  # in their order
    assert listening(settings)["127.0.0.1:7501"].arguments is None


def test_another_kind_of_process_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(settings: Settings) -> list[Process]:
        arguments = ("--datacentre", "east")
        return [Process("east", "tally", "east", "127.0.0.1:9999", "tally-east", "east", "tally east", arguments)]

    monkeypatch.setitem(KINDS, "tally", Kind(5, "photon.v1.Tally", listed))  # type: ignore[arg-type]
    settings = load(EXAMPLE, environment={})
    assert "tally east" in [each.title for each in asked_of(settings, "east")]
    assert "tally east" not in [each.title for each in asked_of(settings, "west")]
    assert "tally-east" in identities(settings)
    assert listening(settings)["127.0.0.1:9999"].kind == "tally"
    [started] = [each for each in Deployment(EXAMPLE, settings, Path("run")).services() if each.name == "tally east"]
    assert started.arguments[:2] == ("serve", "tally")
    assert (started.health, started.address, started.datacentre) == ("photon.v1.Tally", "127.0.0.1:9999", "east")


def test_a_join_on_spark_takes_the_place_of_dispatcher_and_joiners() -> None:
    settings = load(
        TOGETHER, environment={}, flags=['datacentre.east.pipeline="spark"', 'datacentre.east.apart.spark="h:1"']
    )
    started = [each.label for stage in stages(settings) for each in stage if each.datacentre == "east"]
    assert [label for label in started if not label.startswith("registry")] == [
        "spark east", "datacentre east"
    ]  # fmt: skip
    flags = ['datacentre.west.pipeline="spark"', 'datacentre.west.apart.spark="h:1"']
    apart = load(EXAMPLE, environment={}, flags=flags)  # it may move there and back
    kinds = {each.kind for each in processes(apart) if each.datacentre == "west"}
    assert kinds == {"eventstore", "verifier", "spark", "registry"}
