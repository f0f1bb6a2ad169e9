"""Whom the status of a datacentre asks."""

from __future__ import annotations

from pathlib import Path

from photon.config.loader import load
from photon.status.targets import targets_of

EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"


def test_its_own_processes_the_registry_and_the_proxy_are_asked() -> None:
    settings = load(EXAMPLE, environment={})
    found = targets_of(settings, "west", None)
    assert [each.name for each in found] == [
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
