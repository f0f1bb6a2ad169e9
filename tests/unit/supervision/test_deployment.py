"""From a deployment file to processes; and which of them have read a changed key."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.loader import ConfigError, load
from photon.supervision.deployment import Deployment, changed_keys, reads
from photon.supervision.routes import regions, routes_needed, routes_of
from tests.unit.supervision.deployments import EXAMPLE, TOGETHER, example_settings

RUN = Path("/run")


def _deployment() -> Deployment:
    settings = example_settings()
    return Deployment(EXAMPLE, settings, RUN, routes_of(settings, range(9000, 9000 + routes_needed(settings))))


def test_processes_start_in_the_order_in_which_they_need_each_other() -> None:
    stages = _deployment().stages()
    assert [service.arguments[:2] for service in stages[0]] == [("wan", "serve")]
    assert {service.arguments[0] for stage in stages[1:] for service in stage} == {"serve"}
    assert [["wan"], *([service.arguments[1] for service in stage] for stage in stages[1:])] == [
        ["wan"],
        ["registry"] * 3,
        ["eventstore"] * 2,
        ["joiner"] * 4 + ["verifier"] * 2,
        ["dispatcher"] * 2,
    ]
    assert [s.name for s in _deployment().services()][:3] == ["wan", "registry r1", "registry r2"]


def test_each_process_has_a_name_a_log_and_an_address_of_its_own() -> None:
    services = _deployment().services()
    for value in ("name", "log", "address"):
        assert len({getattr(service, value) for service in services}) == len(services) == 14


def test_cache_nodes_start_before_their_event_store_and_are_lost_with_it() -> None:
    flags = ['datacentre.east.apart.cache=["127.0.0.1:9810", "127.0.0.1:9820"]']
    settings = load(EXAMPLE, environment={}, flags=flags)
    stages = Deployment(EXAMPLE, settings, RUN).stages()
    assert [[service.name for service in stage] for stage in stages[2:4]] == [
        ["cache east-c1", "cache east-c2"],
        ["eventstore east", "eventstore west"],
    ]
    node = stages[2][0]
    assert node.arguments[:7] == ("serve", "cache", "east-c1", "--datacentre", "east", "--config", str(EXAMPLE))
    assert (node.address, node.datacentre) == ("127.0.0.1:9810", "east")


def test_a_datacentre_has_as_many_dispatchers_as_the_file_says(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    file = tmp_path / "photon.toml"
    file.write_text(text.replace("[datacentre.east]\n", "[datacentre.east]\ndispatchers = 2\n"))
    at = "127.0.0.1:9900"
    settings = load(file, environment={}, flags=[f'datacentre.east.apart.dispatcher="{at}"'])
    dispatchers = Deployment(file, settings, RUN).stages()[-1]
    assert [service.name for service in dispatchers] == [
        "dispatcher east 1of2",
        "dispatcher east 2of2",
        "dispatcher west",
    ]
    assert dispatchers[0].arguments[:3] == ("serve", "dispatcher", "1of2")
    assert [service.address for service in dispatchers[:2]] == [at, "127.0.0.1:9901"]
    assert [service.datacentre for service in dispatchers] == ["east", "east", "west"]
    taken = "datacentre.east.apart.dispatcher='127.0.0.1:7512'"  # and the next port is another process's
    for wrong, why in (("datacentre.east.dispatchers=9", "<= 8"), (taken, "7513: used twice")):
        with pytest.raises(ConfigError, match=why):
            load(file, environment={}, flags=[wrong])


def test_a_datacentre_is_one_process() -> None:
    settings = load(TOGETHER, environment={})
    *_, last = Deployment(TOGETHER, settings, RUN).stages()
    assert [service.arguments[:3] for service in last] == [("serve", "datacentre", each) for each in ("east", "west")]
    assert (last[0].address, last[0].health) == ("127.0.0.1:7600", "photon.v1.Datacentre")


def test_a_datacentre_is_lost_with_its_replica() -> None:
    lost = [service.name for service in _deployment().services() if service.datacentre == "east"]
    assert lost == [
        "registry r1",
        "eventstore east",
        "joiner east-1",
        "joiner east-2",
        "verifier east",
        "dispatcher east",
    ]


def test_replicas_in_other_regions_are_reached_through_the_proxy() -> None:
    deployment = _deployment()
    assert regions(deployment.settings) == ["centre", "east", "west"]
    by_listen = {route.listen: route for route in deployment.routes}
    assert len(by_listen) == routes_needed(deployment.settings) == 6
    for service in deployment.services():
        sets = [
            value for flag, value in zip(service.arguments, service.arguments[1:], strict=False) if flag == "--set"
        ]
        if service.name == "wan":
            assert sets == []
            continue
        assert len(sets) == 2
        region = service.datacentre or "centre"
        for each in sets:
            key, _, listen = each.partition("=")
            route = by_listen[listen.strip('"')]
            replica = key.split(".")[2]
            assert route.source == region
            assert route.destination == deployment.settings.region_of_replica(replica)
            assert route.target == deployment.settings.registry.replicas[replica].address


@pytest.mark.parametrize(
    ("key", "value", "some", "others"),
    [
        ("registry.retention", "9d", {"registry r1", "joiner east-1", "dispatcher west"}, {"wan"}),
        ("datacentre.east.watch", "poll", {"joiner east-1", "dispatcher east"}, {"registry r1", "joiner west-1"}),
        ("datacentre.east.apart.copies", "127.0.0.1:7998", {"joiner east-1", "joiner west-1"}, {"dispatcher west"}),
        ("datacentre.east.region", "south", {"registry r1", "dispatcher east"}, {"dispatcher west", "wan"}),
        ("wan.round_trip", "7ms", {"wan"}, {"registry r1", "joiner east-1"}),
    ],
)
def test_readers_of_a_changed_key_are_to_be_restarted(key: str, value: str, some: set[str], others: set[str]) -> None:
    before = load(EXAMPLE, environment={}, flags=["wan.control=127.0.0.1:7999"])
    after = load(EXAMPLE, environment={}, flags=["wan.control=127.0.0.1:7999", f"{key}={value}"])
    assert changed_keys(before, after) == [key]
    found = {each.name for each in Deployment(EXAMPLE, after, Path()).services() if reads(each, [key])}
    assert some <= found
    assert not others & found
    assert changed_keys(before, before) == []
