"""The files of the compose deployment say the same: services, certificates, routes, pinned packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from photon.assembly.copies import keepers
from photon.config.loader import load
from photon.config.settings import Settings
from photon.fleet.processes import identities
from photon.joiner.copies.api import keeper_of
from photon.supervision.routes import read_routes

ROOT = Path(__file__).parents[3]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
FILE = ROOT / "deploy" / "compose" / "photon.toml"
INSECURE = FILE.with_name("photon.insecure.toml")


def settings() -> Settings:
    return load(FILE, environment={})


def services() -> dict[str, str]:
    """Name -> its lines."""
    body = COMPOSE.split("\nservices:\n")[1].split("\nnetworks:\n")[0]
    parts = re.split(r"^  ([a-z0-9-]+):\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def networks(lines: str) -> set[str]:
    """Those that a service is on."""
    if "    networks:\n" in lines:
        below = re.split(r"^    \w", lines.split("    networks:\n")[1], flags=re.MULTILINE)[0]
        return set(re.findall(r"^      ([a-z-]+): \{", below, flags=re.MULTILINE))
    found = re.search(r"^    networks: (\[[\w-]+\]|\{(\w+): .*)$", lines, flags=re.MULTILINE)
    return {found[2] or found[1].strip("[]")} if found else set()


def hbase_networks() -> set[str]:
    return {f"{name}-hbase" for name in settings().datacentre}


def test_the_insecure_file_differs_by_its_tls_alone() -> None:
    secure = tomllib.loads(FILE.read_text())
    assert secure.pop("tls") == {"directory": "/certs"}
    assert tomllib.loads(INSECURE.read_text()) == secure


def test_each_service_that_reads_the_file_gets_the_insecure_one_by_the_override() -> None:
    override = (ROOT / "docker-compose.insecure.yml").read_text()
    reading = {name for name, lines in services().items() if "photon.toml:/etc" in lines}
    assert set(re.findall(r"^  ([a-z0-9-]+): \*plain$", override, flags=re.MULTILINE)) == reading


def test_five_replicas_in_three_regions_at_most_two_in_one() -> None:
    regions = [settings().region_of_replica(name) for name in settings().registry.replicas]
    assert sorted(regions) == ["central", "east", "east", "west", "west"]


def _other(found: Settings, datacentre: str) -> str:
    [other] = set(found.datacentre) - {datacentre}
    return other


def test_each_service_is_in_one_region_but_for_the_gateway_and_what_has_no_network() -> None:
    for name, lines in services().items():
        on = networks(lines)
        if name == "wan":
            assert on == {"east", "central", "west"}
        elif "network_mode: none" in lines:
            assert on == set(), name
        else:
            assert len(on) == 1 or name.startswith("eventstore-"), name
            assert len(on - hbase_networks()) <= 1, name
    for name in settings().registry.replicas:
        assert networks(services()[f"registry-{name}"]) == {settings().region_of_replica(name)}


def test_who_reaches_hbase_needs_it_and_nobody_is_reached_from_there() -> None:
    """Its Thrift servers know no login."""
    found = services()
    for each in settings().datacentre:
        on = {name for name, lines in found.items() if f"{each}-hbase" in networks(lines)}
        assert on == {f"hbase-{each}", f"hbase-init-{each}", f"eventstore-{each}"}
        assert f"\n  {each}-hbase: {{internal: true}}\n" in COMPOSE
        # by the name of its own region alone: its other name is that of its address on HBase's network too
        assert settings().datacentre[each].eventstore == f"eventstore.{each}:7020"
        assert f"      {each}: {{aliases: [eventstore.{each}]}}\n" in found[f"eventstore-{each}"]


def test_each_datacentre_keeps_the_copies_of_the_other_and_operators_tell_their_places_apart() -> None:
    assert settings().output.copies == 2
    assert [keeper_of(each, keepers(settings())) for each in ("east", "west")] == ["west", "east"]
    found = services()
    for each, other in (("east", "west"), ("west", "east")):
        assert f"state-{each}:/state\n" in found[f"copies-{each}"]
        operator = found[f"operator-{each}"]
        assert f"state-{each}:/state\n" in operator
        assert f"PHOTON_SET_datacentre__{other}__state: /elsewhere/state\n" in operator
        assert f"PHOTON_SET_datacentre__{other}__output: /elsewhere/output\n" in operator
        assert f"output-{other}:/elsewhere/output:ro\n" in operator
        assert f"state-{other}:" not in operator  # a command for its slots is for the other operator


def test_joiners_and_dispatchers_can_be_scaled() -> None:
    """No name, address or published port of theirs is one container's alone."""
    found = services()
    for each, pipeline in settings().datacentre.items():
        assert pipeline.discover
        assert not pipeline.joiners
        for kind, port in (("joiner", 7040), ("dispatcher", 7050)):
            lines = found[f"{kind}-{each}"]
            assert f"serve, {kind}, auto, " in lines
            assert f'--listen, "0.0.0.0:{port}", --address, "auto:{port}"' in lines
            assert f'"127.0.0.1:{port}"' in lines.split("healthcheck")[1]
            assert "container_name" not in lines
            assert "ports:" not in lines


def test_prometheus_asks_the_status_page_of_each_datacentre_through_the_gateway() -> None:
    targets = re.findall(r'"([\w-]+:\d+)"', (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert targets == [pipeline.status for pipeline in settings().datacentre.values()]
    for name in ("prometheus", "grafana"):
        assert "profiles: [monitoring]" in services()[name]
        assert networks(services()[name]) == {"central"}
    assert "ports:" not in services()["prometheus"]


def test_each_address_of_another_region_has_a_route_and_no_other_has() -> None:
    found = settings()
    regions = {found.region_of_replica(name) for name in found.registry.replicas}
    between = [(r.address, found.region_of_replica(name)) for name, r in found.registry.replicas.items()]
    expected = set()
    for source in regions:
        for address, at in between:
            host, _, port = address.rpartition(":")
            if at != source:
                expected.add((f"wan.{source}:{port}", source, at, f"{host}.{at}:{port}"))
    for at, pipeline in found.datacentre.items():
        # joiners to the keeper of their copies; Prometheus to the status pages
        for source, address in ((_other(found, at), pipeline.copies), ("central", pipeline.status)):
            assert address is not None
            host, _, port = address.rpartition(":")
            expected.add((f"wan.{source}:{port}", source, at, f"{host}.{at}:{port}"))
            assert networks(services()[host]) == {at}
            assert f"{{aliases: [{host}.{at}]}}" in services()[host]
    routes = read_routes(FILE.with_name("routes.json"))
    assert {(r.listen, r.source, r.destination, r.target) for r in routes} == expected
    aliases = dict(re.findall(r"^      (\w+): \{aliases: \[(.*)\]\}$", services()["wan"], flags=re.MULTILINE))
    for region in regions:
        names = {
            target.rpartition(":")[0].rpartition(".")[0] for _, source, _, target in expected if source == region
        }
        assert set(aliases[region].split(", ")) == names | {"wan", f"wan.{region}"}


def test_each_identity_has_a_volume_of_its_own_and_no_service_sees_another_s() -> None:
    found = services()
    issued = set(re.findall(r"- certs-([\w-]+):/certs/([\w-]+)$", found["certs"], flags=re.MULTILINE))
    assert issued == {(name, name) for name in [*identities(settings()), "ca"]}
    declared = COMPOSE.split("\nvolumes:\n")[1]
    for name, _ in issued:
        assert f"\n  certs-{name}:\n" in f"\n{declared}\n"
    for name, lines in found.items():
        mounted = re.findall(r"- certs-([\w-]+):/certs:ro", lines)
        assert len(mounted) <= 1, name
        if mounted and not name.startswith("operator-"):
            assert mounted == [name]


def test_what_every_container_is_denied() -> None:
    hardened = COMPOSE.split("x-hardened:")[1].split("\nx-photon:")[0]
    for needed in (
        "read_only: true",
        "cap_drop: [ALL]",
        "no-new-privileges:true",
        "mem_limit:",
        "pids_limit:",
        "restart:",
    ):
        assert needed in hardened
    for name, lines in services().items():
        assert "<<: *photon" in lines or "<<: *hardened" in lines, name
        assert "privileged" not in lines
        assert "cap_add" not in lines
        assert "user:" not in lines


def test_only_status_pages_are_published_and_only_on_this_machine() -> None:
    for name, lines in services().items():
        for port in re.findall(r"ports: \[(.*)\]", lines):
            assert re.fullmatch(r'"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+"', port), name
            assert name.startswith("status-") or name == "grafana"


def test_the_pinned_packages_are_those_that_are_allowed() -> None:
    lines = (ROOT / "deploy" / "docker" / "requirements.txt").read_text().splitlines()
    pins = {canonicalize_name(name): version for name, version in (x.split("==") for x in lines if "==" in x)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for each in [*project["dependencies"], *project["optional-dependencies"]["hbase"]]:
        wanted = Requirement(each)
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), each
