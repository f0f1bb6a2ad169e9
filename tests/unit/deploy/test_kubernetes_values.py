"""The chart's values are generated from a deployment file; settings that the chart cannot run are reported in one
line before that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from photon import __version__
from photon.supervision.kubernetes import PARTS, callers
from tests.unit.deploy.scripts import refusal
from tests.unit.refusals import photon

HELM = Path(__file__).parents[3] / "deploy" / "helm"
SIDES = """\
[join.clicks.primary]
format = "jsonl"
key = "query_id"
[join.clicks.foreign]
format = "jsonl"
key = "query_id"
id = "click_id"
time = { field = "time_us", unit = "us" }
"""


def made(file: Path, to: Path) -> dict[str, Any]:
    done = photon("up", file, "--helm", to)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = yaml.safe_load(to.read_text())["deployment"]
    return found


@pytest.mark.parametrize("name", ["three-zones", "three-clusters"])
def test_each_process_is_a_service_that_listens_everywhere(tmp_path: Path, name: str) -> None:
    found = made(HELM / f"{name}.toml", tmp_path / "values.yaml")
    assert found["file"] == (HELM / f"{name}.toml").read_text()
    assert (found["config"], found["tls"]) == (f"{name}.toml", True)
    for each in found["services"]:
        words = each["arguments"]
        assert words[:2] == ["serve", each["kind"]]
        assert words[words.index("--listen") + 1] == f"0.0.0.0:{each['port']}"
        assert words[-1] == f"/etc/photon/{name}.toml"
        assert each["host"].partition(".")[0] == each["name"]


@pytest.mark.parametrize("elsewhere", ["s3://bucket/", "/var/log/"])
def test_logs_that_are_elsewhere_need_no_claim(tmp_path: Path, elsewhere: str) -> None:
    text = (HELM / "three-zones.toml").read_text().replace('"/logs/', f'"{elsewhere}')
    (tmp_path / "photon.toml").write_text(text)
    found = made(tmp_path / "photon.toml", tmp_path / "values.yaml")
    assert not [each["name"] for each in found["services"] if "logs" in each["mounts"]]


ONE = """
[sink.lake]
into = "s3://lake/a"
address = "sink-lake:7600"
[compute.spend]
file = "spend.py"
state = "/state/spend"
processes = 2
address = "compute-spend:7500"
"""


def one_datacentre() -> str:
    """The first datacentre of three-zones alone."""
    text = (HELM / "three-zones.toml").read_text()
    first, _, _ = text.partition("[datacentre.b]")
    return first.replace('datacentre = "b"', 'region = "b"').replace("copies = 2", "copies = 1") + ONE


def test_sinks_and_computations_are_services_of_the_datacentre_that_they_read(tmp_path: Path) -> None:
    (tmp_path / "photon.toml").write_text(one_datacentre())
    (tmp_path / "spend.py").write_text("# a topology\n")
    found = made(tmp_path / "photon.toml", tmp_path / "values.yaml")
    jsonschema.validate({"deployment": found}, json.loads((HELM / "photon" / "values.schema.json").read_text()))
    own = {each["kind"]: each for each in reversed(found["services"])}
    second = next(each for each in found["services"] if each["name"] == "compute-spend-2")
    assert second["arguments"][:5] == ["serve", "compute", "spend-2", "--listen", "0.0.0.0:7500"]
    assert (second["host"], second["identity"]) == ("compute-spend-2", "compute-spend")
    for kind, name, port in (("sink", "lake", 7600), ("compute", "spend", 7500)):
        each = own[kind]
        words = ["serve", kind, name, "--listen", f"0.0.0.0:{port}", "--config", "/etc/photon/photon.toml"]
        assert each["arguments"] == words
        assert (each["datacentre"], each["mounts"]) == ("a", ["state", "output"])
        assert each["identity"] == f"{kind}-{name}"
    assert found["programs"] == {"spend.py": "# a topology\n"}
    assert {"sink", "compute"} <= found["callers"].keys()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"/state/spend"', '"spend"', "compute.spend.state = 'spend': must be in '/state'"),
        ('"spend.py"', '"programs/spend.py"', "compute.spend.file = 'programs/spend.py': must be next to"),
        ('address = "compute-spend:7500"', "", "compute.spend.address: is missing"),
    ],
)
def test_a_computation_that_the_chart_cannot_run(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in refusal(tmp_path, "--helm", one_datacentre(), old, new)


def test_who_may_call_is_what_the_table_of_rights_says() -> None:
    assert {each["kind"] for each in callers("joiner")} == {*PARTS, "operator"}
    assert {"kind": "spark", "here": True} in callers("eventstore")
    assert {"kind": "datacentre", "here": False} in callers("datacentre")
    assert {"kind": "registry", "here": False} in callers("registry")
    assert callers("status") == []


def test_joiners_that_are_found_are_a_service_of_any_size(tmp_path: Path) -> None:
    text = (HELM / "three-zones.toml").read_text().replace('state = "/state"', 'state = "/state"\njoiners = 0')
    (tmp_path / "photon.toml").write_text(text)
    found = {each["name"]: each for each in made(tmp_path / "photon.toml", tmp_path / "values.yaml")["services"]}
    assert [name for name, each in found.items() if each["scaled"]] == ["joiner-a", "joiner-b"]
    words = found["joiner-a"]["arguments"]
    assert words[:5] == ["serve", "joiner", "auto", "--datacentre", "a"]
    assert words[words.index("--address") + 1] == "$(POD_IP):7040"


def test_the_page_has_a_service_of_its_own(tmp_path: Path) -> None:
    """Other clusters call the datacentre's, which may be a load balancer; the page has no login."""
    for each in made(HELM / "three-clusters.toml", tmp_path / "values.yaml")["services"]:
        assert each["between"]
        assert each["page"] == {"name": each["name"].replace("datacentre", "status"), "port": 8080}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('key_file = "/key/key"', 'key_file = "key"', "key_file = 'key': must be '/key/key'"),
        ('directory = "/certs"', 'directory = "certs"', "tls.directory = 'certs': must be '/certs'"),
        ("[registry]", '[wan]\ncontrol = "wan:7000"\n[registry]', "wan: simulates a network between regions"),
        ('state = "/state"', 'state = "/data"', "datacentre.a.state = '/data': must be '/state'"),
        ('"/logs/queries"', '"/queries"', "datacentre.a.primary = '/queries': must be a URL, or in '/logs'"),
        ('state = "/state"', 'state = "/state"\napart.verifier = "v.a:1"', "v.a:1: is internal to its cluster"),
        ('"registry-r1:7001"', '"10.0.0.1:7001"', "the host must be a Service's name"),
        (
            SIDES,
            'adapter = "acme-billing"\n',  # the parts that call it are at ports of the datacentre's host
            "joiner a-1: datacentre-a:7110: is also the service of dispatcher a; give each its own host",
        ),
        ('"registry-r1:7001"', '"registry-r2.a.example:7001"', "is also the Service of registry r1"),
        ('"datacentre-a:7100"', '"operator-a:7100"', "operator-a, which is created automatically"),
        ('status = "status-a:8080"', "", "status a: 127.0.0.1:7101: the host must be a Service's name"),
        (
            '"status-a:8080"',
            '"datacentre-a:8080"',
            "status a: datacentre-a:8080: is also the Service of datacentre a",
        ),
        ("replicas.r1]", "replicas.r_1]", "registry.replicas.r_1: becomes a name in Kubernetes"),
        (
            'state = "/state"',
            'state = "/state"\njoiners = 2',
            "datacentre.a.joiners: several joiners must be found",
        ),
    ],
)
def test_what_the_chart_cannot_run_is_one_line_before_anything_is_written(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert said in refusal(tmp_path, "--helm", (HELM / "three-zones.toml").read_text(), old, new)


def test_the_chart_has_no_image_of_its_own() -> None:
    """The installing user says where nodes pull from; the tag is the chart's version, which is Photon's."""
    chart = HELM / "photon"
    image = yaml.safe_load((chart / "values.yaml").read_text())["image"]
    assert (image["repository"], image["tag"]) == ("", "")
    template = (chart / "templates" / "_pod.tpl").read_text()
    assert 'required "image.repository is missing' in template
    assert "$values.image.tag | default $.root.Chart.Version" in template
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["version"] == __version__
    assert "latest" not in (chart / "values.yaml").read_text()
