"""docker-compose.yml is generated from deploy/compose/photon.toml: services, certificates, routes, rights; the
packages."""

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
from photon.config.loader import convert, load
from photon.config.settings import Settings
from photon.fleet.processes import identities
from photon.joiner.copies.api import keeper_of
from photon.supervision.containers import HBASE_IMAGE, IMAGE, PROMETHEUS_IMAGE, Containers, NotForContainers
from tests.unit.deploy.scripts import COMPOSE as FILE
from tests.unit.deploy.scripts import on_spark, refusal
from tests.unit.refusals import photon

ROOT = Path(__file__).parents[3]
PERSON_LINES_MAX = 250


def settings() -> Settings:
    return load(FILE, environment={})


def document(found: Settings | None = None) -> dict[str, Any]:
    made = Containers(found or settings(), "deploy/compose/photon.toml").compose()
    parsed: dict[str, Any] = yaml.safe_load(made)
    return parsed


SERVICES: Mapping[str, dict[str, Any]] = document()["services"]
WITH_SPARK: Mapping[str, dict[str, Any]] = document(
    convert(tomllib.loads(on_spark(FILE.read_text(), "west")), "file")
)["services"]
BOTH = [*SERVICES.items(), *WITH_SPARK.items()]


def networks(service: str) -> set[str]:
    return set(SERVICES[service].get("networks", ()))


def test_the_file_in_the_root_is_the_one_that_is_made() -> None:
    made = Containers(settings(), "deploy/compose/photon.toml").compose()
    assert (ROOT / "docker-compose.yml").read_text() == made, "make compose"


def test_what_a_person_reads_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= PERSON_LINES_MAX


def changed(old: str, new: str) -> dict[str, Any]:
    text = FILE.read_text()
    assert old in text
    return tomllib.loads(text.replace(old, new))


def test_another_replica_is_one_edit() -> None:
    """Service, volume, certificate, route and name at the gateway."""
    found = document(convert(changed("[registry.replicas.r3]\naddress = \"registry-r3:7003\"",
                                     "[registry.replicas.r6]\naddress = \"registry-r6:7006\""), "file"))  # fmt: skip
    services = found["services"]
    assert "registry-r3" not in services
    assert services["registry-r6"]["command"][:3] == ["serve", "registry", "r6"]
    assert "registry-r6:/registry" in services["registry-r6"]["volumes"]
    assert "certs-registry-r6:/certs:ro" in services["registry-r6"]["volumes"]
    assert "certs-registry-r6:/certs/registry-r6" in services["certs"]["volumes"]
    assert "registry-r6" in services["certs"]["build"]["args"]["IDENTITIES"].split()
    assert "registry-r6" in services["wan"]["networks"]["east"]["aliases"]
    assert {"registry-r6", "certs-registry-r6"} <= found["volumes"].keys()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('address = "registry-r3:7003"', 'address = "r3:7003"', "r3.address = 'r3:7003': must be registry-r3:PORT"),
        ('address = "registry-r3:7003"', 'address = "registry-r3:7001"', "have one port"),
        ('state = "/state"', 'state = "/data"', "datacentre.east.state = '/data': must be '/state'"),
        ('state = "/state"', 'state = "/state"\njoiners.j.address = "j:1"', "datacentre.east: joiners are"),
        ("[wan]\ncontrol = \"wan:7000\"\nround_trip = \"100ms\"\n", "", "wan: is missing"),
        ('datacentre = "central"', "", "registry.replicas.r3.region: is missing"),
        ('verifier = "verifier-east:7055"', 'verifier = "copies-east:7055"', "is the service of"),
        ('verifier = "verifier-east:7055"', 'verifier = "joiner-east:7055"', "is the service of joiner-east, which"),
        ('verifier = "verifier-east:7055"', 'verifier = "Verifier:7055"', "must be a service's name"),
    ],
)  # fmt: skip
def test_what_cannot_be_in_containers_is_one_line_before_anything_is_written(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert said in refusal(tmp_path, "--compose", FILE.read_text(), old, new)


def test_a_join_on_spark_is_one_service_like_the_dispatcher_that_it_replaces() -> None:
    assert SERVICES.keys() - WITH_SPARK.keys() == {"joiner-west"}
    driver, dispatcher = WITH_SPARK["dispatcher-west"], SERVICES["dispatcher-west"]
    assert driver["command"] == ["serve", "spark", "--datacentre", "west", "--config", "/etc/photon/photon.toml"]
    assert driver["healthcheck"]["test"] == ["CMD", "photon", "health", "dispatcher-west:7050"]
    certified = [each.replace("certs-dispatcher", "certs-spark") for each in dispatcher["volumes"]]
    assert driver["volumes"] == certified
    assert "certs-spark-west:/certs/spark-west" in WITH_SPARK["certs"]["volumes"]
    for same in ("networks", "depends_on", "environment", "restart", "stop_grace_period", "init", "read_only"):
        assert driver[same] == dispatcher[same], same
    assert {name for name, each in WITH_SPARK.items() if each["image"].endswith("-spark")} == {"dispatcher-west"}
    assert driver["build"]["target"] == "spark"


def test_a_datacentre_on_spark_keeps_its_tables_of_joiners() -> None:
    """Its join may move there and back."""
    named = f'{on_spark(FILE.read_text(), "west")}[datacentre.west.joiners.w1]\naddress = "w1:7101"\n'
    assert document(convert(tomllib.loads(named), "file"))["services"].keys() == WITH_SPARK.keys()


SINKS = """
[sink.lake]
into = "s3://lake/east"
datacentre = "east"
address = "sink-lake:7600"
[sink.shop]
into = "postgresql://db/shop"
datacentre = "west"
address = "sink-shop:7600"
"""


def test_a_sink_is_a_service_of_its_datacentre_with_what_it_takes_of_the_environment() -> None:
    made = document(convert(tomllib.loads(FILE.read_text() + SINKS), "file"))["services"]
    lake, shop = made["sink-lake"], made["sink-shop"]
    assert lake["command"] == ["serve", "sink", "lake", "--config", "/etc/photon/photon.toml"]
    assert {"state-east:/state", "output-east:/output", "certs-sink-lake:/certs:ro"} <= {*lake["volumes"]}
    assert [*lake["networks"], *shop["networks"]] == ["east", "west"]
    assert lake["healthcheck"]["test"] == ["CMD", "photon", "health", "sink-lake:7600"]
    assert lake["environment"]["AWS_ACCESS_KEY_ID"] is None  # Compose's own, if it is set
    assert shop["environment"]["PGPASSWORD"] is None
    assert "AWS_REGION" not in shop["environment"]
    assert "certs-sink-lake:/certs/sink-lake" in made["certs"]["volumes"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (SINKS.replace("s3://lake/east", "lake"), "sink.lake.into = 'lake': must be a URL, a topic or PostgreSQL"),
        (SINKS.replace('address = "sink-lake:7600"\n', ""), "sink.lake.address: is missing; write address ="),
        ('[compute.spend]\nfile = "spend.py"\nstate = "/state/spend"', "compute.spend: reads outputs on its machine"),
        ('[observe.dedup]\nfile = "d.py"\naddresses = ["o:1"]', "observe.dedup: no service is made of it"),
    ],
)
def test_a_sink_or_computation_that_cannot_be_in_containers(more: str, said: str) -> None:
    with pytest.raises(NotForContainers, match=re.escape(said)):
        document(convert(tomllib.loads(f"{FILE.read_text()}\n{more}"), "file"))


def test_it_is_written_next_to_its_settings_or_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "photon.toml").write_text(FILE.read_text())
    where = tmp_path / "compose.yml"
    done = photon("up", tmp_path / "photon.toml", "--compose", where, "-o", "json")
    assert done.exit_code == 0, done.output
    assert "${PHOTON_SETTINGS:-./.}:/etc/photon:ro" in where.read_text()


def test_without_certificates_or_with_hbase_by_one_variable() -> None:
    """PHOTON_TLS= and PHOTON_HBASE=hbase:9090 of the compose file, as each process sees them."""
    emptied = ("PHOTON_SET_tls__directory", "PHOTON_SET_datacentre__east__hbase__thrift")
    found = load(FILE, environment=dict.fromkeys(emptied, ""))
    assert found.tls is None
    assert found.datacentre["east"].hbase is None
    store = SERVICES["eventstore-east"]["environment"]
    assert store["PHOTON_SET_datacentre__east__hbase__thrift"] == "${PHOTON_HBASE:-}"
    for name, each in SERVICES.items():
        if name.startswith("hbase-"):
            assert each["profiles"] == ["hbase"]
        elif any(mount.endswith(":/certs:ro") for mount in each.get("volumes", ())):
            for variable in ("PHOTON_HEALTH_TLS", "PHOTON_SET_tls__directory"):
                assert each["environment"][variable] == "${PHOTON_TLS-/certs}"


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
            assert len(on) == 1 or name.startswith("eventstore-"), name
            assert len(on - hbase) <= 1, name
    for name in settings().registry.replicas:
        assert networks(f"registry-{name}") == {settings().region_of_replica(name)}


def test_who_reaches_hbase_needs_it_and_nobody_is_reached_from_there() -> None:
    """Its Thrift servers have no login."""
    for each in settings().datacentre:
        on = {name for name in SERVICES if f"{each}-hbase" in networks(name)}
        assert on == {f"hbase-{each}", f"hbase-init-{each}", f"eventstore-{each}"}
        assert document()["networks"][f"{each}-hbase"] == {"internal": True}
        # by the name of its own region alone: its other name has its address on HBase's network too
        assert settings().datacentre[each].eventstore == f"eventstore.{each}:7020"
        assert SERVICES[f"eventstore-{each}"]["networks"][each] == {"aliases": [f"eventstore.{each}"]}


def test_each_datacentre_keeps_the_copies_of_the_other_and_operators_tell_their_places_apart() -> None:
    assert settings().output.copies == 2
    assert [keeper_of(each, keepers(settings())) for each in ("east", "west")] == ["west", "east"]
    for each, other in (("east", "west"), ("west", "east")):
        assert f"state-{each}:/state" in SERVICES[f"copies-{each}"]["volumes"]
        operator = SERVICES[f"operator-{each}"]
        assert f"state-{each}:/state" in operator["volumes"]
        assert operator["environment"][f"PHOTON_SET_datacentre__{other}__state"] == "/elsewhere/state"
        assert operator["environment"][f"PHOTON_SET_datacentre__{other}__output"] == "/elsewhere/output"
        assert f"output-{other}:/elsewhere/output:ro" in operator["volumes"]
        # a command for its slots is for the other operator
        assert not any(mount.startswith(f"state-{other}:") for mount in operator["volumes"])


def test_joiners_can_be_scaled() -> None:
    """None of their names, addresses or published ports belongs to one container alone."""
    for each, pipeline in settings().datacentre.items():
        assert not pipeline.joiners
        found = SERVICES[f"joiner-{each}"]
        assert found["command"][:3] == ["serve", "joiner", "auto"]
        assert {"0.0.0.0:7040", "auto:7040"} <= set(found["command"])
        assert found["healthcheck"]["test"][-1] == "127.0.0.1:7040"
        assert not found.keys() & {"container_name", "ports"}


def test_prometheus_asks_the_status_page_of_each_datacentre_through_the_gateway() -> None:
    text = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    pages = [pipeline.status for pipeline in settings().datacentre.values()]
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
        for source, address in ((other, pipeline.copies), ("central", pipeline.status)):
            assert address is not None
            host, _, port = address.rpartition(":")
            expected.add((f"wan.{source}:{port}", source, at, f"{host}.{at}:{port}"))
            assert SERVICES[host]["networks"] == {at: {"aliases": [f"{host}.{at}"]}}
    routes = Containers(found, "photon.toml").routes()
    assert {(r.listen, r.source, r.destination, r.target) for r in routes} == expected
    for region in regions:
        targets = (target for _, source, _, target in expected if source == region)
        names = {target.rpartition(":")[0].rpartition(".")[0] for target in targets}
        assert set(SERVICES["wan"]["networks"][region]["aliases"]) == names | {"wan", f"wan.{region}"}


def test_each_identity_has_a_volume_of_its_own_and_no_service_sees_another_s() -> None:
    issued = {mount for mount in SERVICES["certs"]["volumes"] if mount.startswith("certs-")}
    names = [*identities(settings()), "ca"]
    assert issued == {f"certs-{name}:/certs/{name}" for name in names}
    assert {f"certs-{name}" for name in names} <= document()["volumes"].keys()
    assert SERVICES["certs"]["build"]["args"]["IDENTITIES"].split() == identities(settings())
    for name, each in SERVICES.items():
        mounted = [mount for mount in each.get("volumes", ()) if mount.endswith(":/certs:ro")]
        assert len(mounted) <= 1, name
        if mounted and not name.startswith("operator-"):
            assert mounted == [f"certs-{name}:/certs:ro"]


def test_what_every_container_is_denied_and_how_much_it_gets() -> None:
    for name, each in BOTH:
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
            assert name.startswith("status-") or name in ("grafana", "prometheus", "alertmanager")


def test_a_deployment_without_a_gateway_is_one_region() -> None:
    found = changed('[wan]\ncontrol = "wan:7000"\nround_trip = "100ms"\n', "")
    with pytest.raises(NotForContainers, match="there are several regions"):
        Containers(convert(found, "file"), "photon.toml")


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
    for name, service in BOTH:
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
