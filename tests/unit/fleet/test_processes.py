"""One list of all processes: which are started, asked, and listening."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.loader import ConfigError, load
from photon.config.roles import Role
from photon.config.settings import Settings
from photon.fleet.processes import KINDS, PIPELINE, Kind, Process, asked_of, identities, listening, processes, stages
from photon.supervision.deployment import Deployment

EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"


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
    flags += [f'datacentre.{name}.copies="127.0.0.1:99{n}0"' for n, name in enumerate(("east", "west"), 1)]
    flags += [f'compute.spend.{key}="{value}"' for key, value in
              (("file", "spend.py"), ("state", "spend"), ("address", "127.0.0.1:9930"))]  # fmt: skip
    flags += ['observe.dedup={file="dedup.py", addresses=["127.0.0.1:9950", "127.0.0.1:9951"]}']
    flags += ['sink.lake={into="s3://lake/east", datacentre="east", address="127.0.0.1:9960"}']
    flags += ['datacentre.east.status="127.0.0.1:8080"', 'datacentre.east.caches.c1.address="127.0.0.1:9810"']
    settings = load(EXAMPLE, environment={}, flags=flags)
    everywhere = listening(settings)
    apart = KINDS.keys() - {PIPELINE, "relay", "spark"}  # no join of the example builds on another one
    assert {each.kind for each in everywhere.values()} == apart
    assert apart <= {str(role) for role in Role}
    assert len(everywhere) == len(processes(settings)) == 22
    started = [each for stage in stages(settings) for each in stage]
    assert sorted(each.label for each in started) == sorted(each.label for each in everywhere.values())
    assert [stage[0].kind for stage in stages(settings)] == [
        "wan", "registry", "cache", "eventstore", "joiner", "dispatcher", "compute",
    ]  # fmt: skip


def test_one_process_starts_in_place_of_those_of_a_pipeline_that_is_together_and_they_are_asked_as_before() -> None:
    apart, together = (
        load(EXAMPLE, environment={}, flags=flags) for flags in ([], ["datacentre.east.together=true"])
    )
    assert listening(together).keys() == listening(apart).keys()
    assert [each.label for each in asked_of(together, "east")] == [each.label for each in asked_of(apart, "east")]
    assert identities(together) == identities(apart)
    started = {each.label for stage in stages(together) for each in stage}
    gone = {each.label for stage in stages(apart) for each in stage} - started
    assert gone == {"eventstore east", "joiner east-1", "joiner east-2", "verifier east", "dispatcher east"}
    assert "pipeline east" in started
    more = ["datacentre.east.together=true", "registry.replicas.r1.together=true"]
    voting = load(EXAMPLE, environment={}, flags=more)
    assert listening(voting).keys() == listening(apart).keys()
    assert {each.label for stage in stages(voting) for each in stage} == started - {"registry r1"}


def test_a_keeper_that_nothing_needs_is_not_started() -> None:
    settings = load(EXAMPLE, environment={}, flags=['datacentre.east.copies="127.0.0.1:9910"'])
    assert listening(settings)["127.0.0.1:9910"].arguments is None
    assert "copies" not in {each.kind for stage in stages(settings) for each in stage}


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
    settings = load(EXAMPLE, environment={}, flags=['datacentre.east.pipeline="spark"'])
    started = [each.label for stage in stages(settings) for each in stage if each.datacentre == "east"]
    assert [label for label in started if not label.startswith("registry")] == [
        "eventstore east", "verifier east", "spark east"
    ]  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"datacentre\.east\.together: joins services into one process; leave it out"
    ):
        load(EXAMPLE, environment={}, flags=['datacentre.east.pipeline="spark"', "datacentre.east.together=true"])
