"""The deployment file is read again when it has changed, and a bad one changes nothing."""

from __future__ import annotations

from pathlib import Path

from photon.assembly.eventstore import cache_nodes
from photon.config.loader import load
from photon.config.settings_reload import SettingsReload
from tests.unit.supervision.deployments import write_deployment

EAST = "[datacentre.east]\n"


def test_nodes_are_those_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    said: list[str] = []
    loads = 0

    def read() -> object:
        nonlocal loads
        loads += 1
        return load(file, environment={})

    again = SettingsReload(file, read, said.append)  # type: ignore[arg-type]
    now = cache_nodes(load(file, environment={}), "east", again)
    assert now() == {}
    good = file.read_text()
    file.write_text(good.replace(EAST, f'{EAST}apart.cache = "127.0.0.1:9001"\n'))
    assert now() == now() == {"east-c1": "127.0.0.1:9001"}
    assert loads == 1
    file.write_text(good + "[datacentre.east.ap")  # half written
    assert now() == now() == {"east-c1": "127.0.0.1:9001"}
    assert len(said) == 1
    assert "not applied" in said[0]
    file.unlink()
    assert now() == {"east-c1": "127.0.0.1:9001"}
    file.write_text(good.replace(EAST, f'{EAST}apart.cache = ["127.0.0.1:9001", "127.0.0.1:9002"]\n'))
    assert now() == {"east-c1": "127.0.0.1:9001", "east-c2": "127.0.0.1:9002"}
    file.write_text(good.replace("[datacentre.east]", "[datacentre.east] # gone soon"))
    assert now() == {}


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    flags = ['datacentre.west.apart.cache="127.0.0.1:9001"']
    settings = load(file, environment={}, flags=flags)
    assert cache_nodes(settings, "west")() == {"west-c1": "127.0.0.1:9001"}
    assert cache_nodes(settings, "nowhere")() == {}
