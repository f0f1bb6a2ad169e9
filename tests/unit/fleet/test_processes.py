"""One list of all processes: who is started, asked, and listens."""

from __future__ import annotations

from pathlib import Path

from photon.config.loader import load
from photon.fleet.processes import KINDS, asked_of, listening, processes, stages

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
    assert settings.wan is not None
    assert (found[-1].address, found[-1].datacentre) == (settings.wan.control, "")
    assert len({each.address for each in found}) == len(found)


def test_every_process_that_listens_is_named() -> None:
    flags = ["output.copies=2", "join.clicks.identical_copies=true"]
    flags += [f'datacentre.{name}.copies="127.0.0.1:99{n}0"' for n, name in enumerate(("east", "west"), 1)]
    flags += ['datacentre.east.status="127.0.0.1:8080"', 'datacentre.east.caches.c1.address="127.0.0.1:9810"']
    settings = load(EXAMPLE, environment={}, flags=flags)
    everywhere = listening(settings)
    assert {each.kind for each in everywhere.values()} == KINDS.keys()
    assert len(everywhere) == len(processes(settings)) == 18
    started = [each for stage in stages(settings) for each in stage]
    assert sorted(each.label for each in started) == sorted(each.label for each in everywhere.values())
    assert [stage[0].kind for stage in stages(settings)] == [
        "wan", "registry", "cache", "eventstore", "joiner", "dispatcher", "status",
    ]  # fmt: skip


def test_a_keeper_that_nothing_needs_is_not_started() -> None:
    settings = load(EXAMPLE, environment={}, flags=['datacentre.east.copies="127.0.0.1:9910"'])
    assert listening(settings)["127.0.0.1:9910"].arguments is None
    assert "copies" not in {each.kind for stage in stages(settings) for each in stage}
