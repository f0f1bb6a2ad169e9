"""The files of the compose deployment say the same: services, certificates, routes, pinned packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from photon.config.loader import load
from photon.config.settings import Settings
from photon.config.tls import identities
from photon.wan.routes import read_routes

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
    """Regions that a service is on."""
    if "    networks:\n" in lines:
        return set(re.findall(r"^      ([a-z]+): \{aliases", lines.split("    networks:\n")[1], flags=re.MULTILINE))
    found = re.search(r"^    networks: (\[\w+\]|\{(\w+): .*)$", lines, flags=re.MULTILINE)
    return {found[2] or found[1].strip("[]")} if found else set()


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


def test_each_service_is_in_one_region_but_for_the_gateway_and_what_has_no_network() -> None:
    for name, lines in services().items():
        on = networks(lines)
        if name == "wan":
            assert on == {"east", "central", "west"}
        elif "network_mode: none" in lines:
            assert on == set(), name
        else:
            assert len(on) == 1, name
    for name in settings().registry.replicas:
        assert networks(services()[f"registry-{name}"]) == {settings().region_of_replica(name)}


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
    routes = read_routes(FILE.with_name("routes.json"))
    assert {(r.listen, r.source, r.destination, r.target) for r in routes} == expected
    aliases = dict(re.findall(r"^      (\w+): \{aliases: \[(.*)\]\}$", services()["wan"], flags=re.MULTILINE))
    for region in regions:
        names = {address.rpartition(":")[0] for address, at in between if at != region}
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
            assert name.startswith("status-") or "profiles: [monitoring]" in lines


def test_the_pinned_packages_are_those_that_are_allowed() -> None:
    lines = (ROOT / "deploy" / "docker" / "requirements.txt").read_text().splitlines()
    pins = {canonicalize_name(name): version for name, version in (x.split("==") for x in lines if "==" in x)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for each in [*project["dependencies"], *project["optional-dependencies"]["hbase"]]:
        wanted = Requirement(each)
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), each
