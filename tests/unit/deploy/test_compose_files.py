"""docker-compose.yml runs deploy/compose/photon.toml: services, certificates, routes, rights; the packages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from photon import __version__
from photon.assembly.copies import keepers
from photon.config.loader import load
from photon.config.settings import Settings
from photon.fleet.processes import identities, stages
from photon.joiner.copies.api import keeper_of
from photon.supervision.routes import gateway_routes
from photon.supervision.services import MOUNTS, services
from tests.unit.deploy.scripts import COMPOSE as FILE

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
DOCUMENT: Mapping[str, Any] = yaml.safe_load(TEXT)
SERVICES: Mapping[str, dict[str, Any]] = DOCUMENT["services"]
IMAGE = f"photon-join:{__version__}"
HBASE_IMAGE, PROMETHEUS_IMAGE = (f"photon-join-{name}:{__version__}" for name in ("hbase", "prometheus"))


def settings() -> Settings:
    return load(FILE, environment={})


def networks(service: str) -> set[str]:
    return set(SERVICES[service].get("networks", ()))


def test_it_is_short_and_says_what_each_service_is_for() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= 250
    for name in SERVICES:
        assert lines[lines.index(f"  {name}:") - 1].startswith("  # "), name


def test_its_services_are_the_processes_of_its_deployment_file() -> None:
    """Each with its command, its certificate, its volumes and its health."""
    found = list(services(settings()))
    lasting = {name for name, each in SERVICES.items() if "profiles" not in each and each["restart"] != "no"}
    assert lasting == {each.name for each in found} | {"wan", "generator"}
    assert len(lasting) <= 9
    assert len(found) == len([each for stage in stages(settings()) for each in stage if each.kind != "wan"])
    for service in found:
        each, process = SERVICES[service.name], service.process
        assert each["command"] == service.serve("/etc/photon/photon.toml"), service.name
        assert each["healthcheck"]["test"] == ["CMD", "photon", "health", process.address]
        mounted = {mount.removesuffix(":ro").rpartition(":")[2] for mount in each["volumes"]}
        assert mounted == {"/etc/photon", "/certs", *(f"/{mount}" for mount in MOUNTS[service.kind])}
        assert f"certs-{process.identity}:/certs:ro" in each["volumes"]


def test_every_volume_and_network_is_declared() -> None:
    mounts = {mount.partition(":")[0] for each in SERVICES.values() for mount in each.get("volumes", ())}
    assert {each for each in mounts if not each.startswith((".", "$"))} == set(DOCUMENT["volumes"])
    assert set().union(*map(networks, SERVICES)) == set(DOCUMENT["networks"])


def test_without_certificates_or_with_hbase_by_one_variable() -> None:
    """PHOTON_TLS= and PHOTON_HBASE=hbase:9090 of the compose file, as each process sees them."""
    emptied = ("PHOTON_SET_tls__directory", "PHOTON_SET_datacentre__east__hbase__thrift")
    found = load(FILE, environment=dict.fromkeys(emptied, ""))
    assert found.tls is None
    assert found.datacentre["east"].hbase is None
    store = SERVICES["datacentre-east"]["environment"]
    assert store["PHOTON_SET_datacentre__east__hbase__thrift"] == "${PHOTON_HBASE:-}"


def test_five_replicas_in_three_regions_at_most_two_in_one() -> None:
    regions = [settings().region_of_replica(name) for name in settings().registry.replicas]
    assert sorted(regions) == ["central", "east", "east", "west", "west"]


def test_a_directory_is_mounted_so_that_a_changed_file_is_seen() -> None:
    for name, each in SERVICES.items():
        for mount in each.get("volumes", ()):
            source = mount.removesuffix(":ro").rpartition(":")[0]
            assert not source.endswith((".toml", ".json", ".yml")), name


def test_each_service_is_in_one_region_but_for_the_gateway_and_what_has_no_network() -> None:
    hbase = {f"{name}-hbase" for name in settings().datacentre}
    for name, each in SERVICES.items():
        on = networks(name)
        if name == "wan":
            assert on == {"east", "central", "west"}
        elif each.get("network_mode") == "none":
            assert on == set(), name
        else:
            assert len(on) == 1 or name.startswith("datacentre-"), name
            assert len(on - hbase) <= 1, name
    for name in settings().registry.replicas:
        assert networks(f"registry-{name}") == {settings().region_of_replica(name)}


def test_who_reaches_hbase_needs_it_and_nobody_is_reached_from_there() -> None:
    """Its Thrift servers have no login."""
    for each in settings().datacentre:
        on = {name for name in SERVICES if f"{each}-hbase" in networks(name)}
        assert on == {f"hbase-{each}", f"hbase-init-{each}", f"datacentre-{each}"}
        assert DOCUMENT["networks"][f"{each}-hbase"] == {"internal": True}
        # it listens at the name of its own region alone: its other name has its address on HBase's network too
        assert settings().datacentre[each].address == f"datacentre.{each}:7100"
        assert f"datacentre.{each}" in SERVICES[f"datacentre-{each}"]["networks"][each]["aliases"]


def test_each_datacentre_keeps_the_copies_of_the_other_and_operators_tell_their_places_apart() -> None:
    assert settings().output.copies == 2
    assert [keeper_of(each, keepers(settings())) for each in ("east", "west")] == ["west", "east"]
    for each, other in (("east", "west"), ("west", "east")):
        assert f"state-{each}:/state" in SERVICES[f"datacentre-{each}"]["volumes"]
        operator = SERVICES[f"operator-{each}"]
        assert f"state-{each}:/state" in operator["volumes"]
        assert operator["environment"][f"PHOTON_SET_datacentre__{other}__state"] == "/elsewhere/state"
        assert operator["environment"][f"PHOTON_SET_datacentre__{other}__output"] == "/elsewhere/output"
        assert f"output-{other}:/elsewhere/output:ro" in operator["volumes"]
        # a command for its slots is for the other operator
        assert not any(mount.startswith(f"state-{other}:") for mount in operator["volumes"])


def test_prometheus_asks_the_status_page_of_each_datacentre_through_the_gateway() -> None:
    text = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    pages = [pipeline.page for pipeline in settings().datacentre.values()]
    assert text["scrape_configs"][0]["static_configs"][0]["targets"] == pages
    for name in ("prometheus", "alertmanager", "alerts", "grafana"):
        assert SERVICES[name]["profiles"] == ["monitoring"]
        assert networks(name) == {"central"}


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
        [other] = found.datacentre.keys() - {at}
        for source, address in ((other, pipeline.at("copies")[0]), ("central", pipeline.page)):
            host, _, port = address.rpartition(":")
            expected.add((f"wan.{source}:{port}", source, at, f"{host}.{at}:{port}"))
            assert SERVICES[host.replace(".", "-")]["networks"][at] == {"aliases": [host, f"{host}.{at}"]}
    routes = gateway_routes(found)
    assert {(r.listen, r.source, r.destination, r.target) for r in routes} == expected
    for region in regions:
        targets = (target for _, source, _, target in expected if source == region)
        names = {target.rpartition(":")[0].rpartition(".")[0] for target in targets}
        assert set(SERVICES["wan"]["networks"][region]["aliases"]) == names | {"wan", f"wan.{region}"}


def test_each_identity_has_a_volume_of_its_own_and_no_service_sees_another_s() -> None:
    issued = {mount for mount in SERVICES["certs"]["volumes"] if mount.startswith("certs-")}
    names = [*identities(settings()), "ca"]
    assert issued == {f"certs-{name}:/certs/{name}" for name in names}
    assert {f"certs-{name}" for name in names} <= DOCUMENT["volumes"].keys()
    assert SERVICES["certs"]["build"]["args"]["IDENTITIES"].split() == identities(settings())
    for name, each in SERVICES.items():
        mounted = [mount for mount in each.get("volumes", ()) if mount.endswith(":/certs:ro")]
        assert len(mounted) <= 1, name
        if mounted and not name.startswith("operator-"):
            assert mounted == [f"certs-{name}:/certs:ro"]


def test_what_every_container_is_denied_and_how_much_it_gets() -> None:
    for name, each in SERVICES.items():
        for limit in ("read_only", "mem_limit", "pids_limit", "cpu_shares", "restart"):
            assert each[limit], (name, limit)
        assert (each["cap_drop"], each["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert not each.keys() & {"privileged", "cap_add", "user"}, name
    # The registry and the routes to it go first: without them nothing is joined.
    most = max(each["cpu_shares"] for each in SERVICES.values())
    assert {n for n, each in SERVICES.items() if each["cpu_shares"] == most} == {
        "wan", *(f"registry-{name}" for name in settings().registry.replicas)
    }  # fmt: skip


def test_only_pages_for_people_are_published_and_only_on_this_machine() -> None:
    for name, each in SERVICES.items():
        for port in each.get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port), name
            assert name.startswith("datacentre-") or name in ("grafana", "prometheus", "alertmanager")


EXTRAS = ("hbase", "kafka", "objects", "otlp", "parquet", "postgres")
PINNED = (*EXTRAS, "spark")
DOCKER = ROOT / "deploy" / "docker"


def pinned(file: str) -> dict[str, str]:
    """Name -> version."""
    found = re.findall(r"^(\S+)==(\S+)", (DOCKER / file).read_text(), re.M)
    return {canonicalize_name(name): version for name, version in found}


def test_the_pinned_packages_are_those_that_are_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = pinned("requirements.txt")
    wanted = {"requirements.txt": project["dependencies"]} | {
        f"{extra}-requirements.txt": project["optional-dependencies"][extra] for extra in PINNED
    }
    for file, requirements in wanted.items():
        pins = base | pinned(file)
        for each in map(Requirement, requirements):
            assert each.specifier.contains(pins[canonicalize_name(each.name)]), each
    assert {*wanted, "build-requirements.txt"} == {each.name for each in DOCKER.glob("*requirements.txt")}
    assert not {"ply", "thriftpy2", "happybase"} & {
        name for file in wanted if file[0] != "h" for name in pinned(file)
    }


def test_every_package_of_an_image_has_hashes_and_every_extra_a_page_that_names_it() -> None:
    for file in DOCKER.glob("*requirements.txt"):
        for pin in re.split(r"\n(?! )", file.read_text()):
            assert not pin or pin.startswith("#") or re.search(r"--hash=sha256:[0-9a-f]{64}$", pin), (file.name, pin)
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert f"({', '.join(f'`{each}`' for each in EXTRAS)})" in page


def test_what_an_extra_pins_differs_from_no_other() -> None:
    """Any of them may be in one image."""
    known: dict[str, str] = {}
    for file in ("requirements.txt", *(f"{extra}-requirements.txt" for extra in PINNED)):
        for name, version in pinned(file).items():
            assert known.setdefault(name, version) == version, name


@pytest.mark.parametrize("extra", PINNED)
def test_extras_have_an_upper_bound(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for each in map(Requirement, project["optional-dependencies"][extra]):
        assert "<" in {specifier.operator for specifier in each.specifier}, each


BUILT = re.compile(r"\$\{[A-Z_]+_IMAGE:-photon-join(?:-hbase|-prometheus)?:(.+)\}(?:-certs|-spark)?")


def test_no_image_that_is_built_here_can_be_pulled_or_has_a_name_of_others() -> None:
    """``photon`` is another project's at Docker Hub, and a pull would overwrite the built image."""
    for name, service in SERVICES.items():
        if name == "grafana":  # a public image
            continue
        built = BUILT.fullmatch(service["image"])
        assert built is not None, (name, service["image"])
        assert built[1] == __version__, name
        assert re.fullmatch(r"\$\{(?:PHOTON|MONITORING)_PULL:-never\}", service["pull_policy"]), name
    assert "latest" not in (ROOT / "docker-compose.yml").read_text()


def test_docs_name_the_images_that_compose_names() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    for image in (IMAGE, f"{IMAGE}-certs", f"{IMAGE}-spark", HBASE_IMAGE, PROMETHEUS_IMAGE):
        assert f"| `{image}` |" in page
