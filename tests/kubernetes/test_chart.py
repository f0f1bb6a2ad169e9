"""The chart, rendered from deployment files by Helm itself and held against the schemas of the API."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from photon import __version__
from photon.cli.main import main
from photon.supervision.kubernetes import callers
from photon.supervision.services import MOUNTS

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "kubernetes"
HELM = Path(os.environ.get("HELM") or BUILT / "helm")
CHART = ROOT / "deploy" / "helm" / "photon"
REPOSITORY = "image.repository=registry.example.com/photon-join"
ALL = """
tls: {certManager: {enabled: true}}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/photon"}}
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true, labels: {release: prometheus}}
joiners: {autoscaling: {enabled: true}}
networkPolicy:
  monitoring: [{namespaceSelector: {matchLabels: {name: monitoring}}}]
  egress: {enabled: true, rules: [{to: [{ipBlock: {cidr: 10.9.0.0/16}}], ports: [{port: 443}]}]}
extraEnv: [{name: AWS_REGION, value: eu-west-1}]
volumes:
  - {name: host, mountPath: /var/log, kinds: [datacentre], source: {hostPath: {path: /var/log}}}
  - {name: authorities, mountPath: /etc/ssl/own, source: {secret: {secretName: authorities}}}
supplementalGroups: [0]
priorityClassName: billing
nodeSelector: {disk: ssd}
podLabels: {azure.workload.identity/use: "true"}
"""
APART = """
joiners = 0
[datacentre.NAME.apart]
cache = ["cache-1-NAME:7010", "cache-2-NAME:7010"]
copies = "copies-NAME:7060"
dispatcher = "dispatcher-NAME:7050"
eventstore = "eventstore-NAME:7020"
status = "status-NAME:8080"
verifier = "verifier-NAME:7030"
"""
SPARK = 'pipeline = "spark"\napart.spark = "spark-b:7050"\n'
Objects = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def built() -> None:
    if not HELM.exists() and not os.environ.get("CI"):
        pytest.skip(f"needs Helm: {HELM} is not there, make test-kubernetes builds it with Go")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the values of both deployment files, and of two more of three zones: with all parts apart and
    any number of joiners, and with the join of ``b`` on Spark."""
    directory = tmp_path_factory.mktemp("values")
    zones = (CHART.parent / "three-zones.toml").read_text()
    for name in "ab":
        zones = zones.replace(f'status = "status-{name}:8080"\n', APART.replace("NAME", name))
    (directory / "apart.toml").write_text(zones)
    zones = (CHART.parent / "three-zones.toml").read_text().replace("copies = 2", "copies = 1")
    (directory / "spark.toml").write_text(zones.replace("[datacentre.b]\n", f"[datacentre.b]\n{SPARK}"))
    files = [directory / "apart.toml", directory / "spark.toml"]
    for file in (CHART.parent / "three-zones.toml", CHART.parent / "three-clusters.toml", *files):
        to = directory / f"{file.stem}.yaml"
        done = CliRunner().invoke(main, ["up", str(file), "--helm", str(to)])
        assert done.exit_code == 0, done.output
    (directory / "all.yaml").write_text(ALL)
    return directory


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    first, *others = words
    return subprocess.run([HELM, first, "--set", REPOSITORY, *others], capture_output=True, text=True, check=False)


def rendered(*words: str | Path) -> Objects:
    done = helm("template", "photon", CHART, "--kube-version", "1.34", *words)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


CASES = {
    "zones": ("three-zones", "values-three-zones.yaml"),
    "apart": ("apart", "values-three-zones.yaml"),
    "spark": ("spark", "values-three-zones.yaml"),
    "east": ("three-clusters", "values-three-clusters.yaml", "--set", "region=east"),
    "central": ("three-clusters", "values-three-clusters.yaml", "--set", "region=central"),
    "west": ("three-clusters", "values-three-clusters.yaml", "--set", "region=west"),
}


@pytest.fixture(scope="module", params=CASES)
def objects(request: pytest.FixtureRequest, made: Path) -> Objects:
    file, values, *more = CASES[request.param]
    return rendered("-f", made / f"{file}.yaml", "-f", CHART / values, "-f", made / "all.yaml", *more)


@cache
def definitions() -> dict[str, Any]:
    """Of the API: an object has no field that its schema does not name."""
    found: dict[str, Any] = json.loads((BUILT / "swagger.json").read_text())["definitions"]
    for each in found.values():
        if "properties" in each:
            each["additionalProperties"] = False
    for name in ("util.intstr.IntOrString", "api.resource.Quantity"):  # told to be strings, are numbers too
        found[f"io.k8s.apimachinery.pkg.{name}"] = {"type": ["string", "integer", "number"]}
    return found


def closed(schema: Any) -> Any:
    """Of a custom resource, likewise."""
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        closed(each)
    if isinstance(schema, dict) and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


@cache
def custom() -> dict[tuple[str, str], jsonschema.Draft7Validator]:
    return {
        (f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"]): jsonschema.Draft7Validator(
            closed(version["schema"]["openAPIV3Schema"])
        )
        for each in yaml.safe_load_all((BUILT / "crds.yaml").read_text())
        for version in each["spec"]["versions"]
    }


@cache
def validator(version: str, kind: str) -> jsonschema.Draft7Validator:
    if (version, kind) in custom():
        return custom()[version, kind]
    group, _, number = version.rpartition("/")
    meant = {"group": group, "version": number, "kind": kind}
    name = next(
        name for name, each in definitions().items() if meant in each.get("x-kubernetes-group-version-kind", ())
    )
    return jsonschema.Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": definitions()})


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name without the release's, template, its one container."""
    for each in objects:
        if each["kind"] in ("StatefulSet", "Deployment"):
            template = each["spec"]["template"]
            [container] = template["spec"]["containers"]
            yield each["metadata"]["name"].removeprefix("photon-"), template, container


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    """By name, without the release's. Services are called as the file says, certificates as secrets are."""
    release = "" if kind in ("Service", "Certificate") else "photon-"
    return {each["metadata"]["name"].removeprefix(release): each for each in objects if each["kind"] == kind}


def test_it_is_what_the_api_takes(objects: Objects) -> None:
    for each in objects:
        problems = [
            f"{each['kind']} {each['metadata']['name']}: {error.json_path}: {error.message}"
            for error in validator(each["apiVersion"], each["kind"]).iter_errors(each)
        ]
        assert not problems
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)


def test_helm_finds_nothing_to_say(made: Path) -> None:
    done = helm("lint", "--strict", CHART, "-f", made / "three-zones.yaml", "--kube-version", "1.34")
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_an_image_has_to_be_named_and_has_the_charts_version(made: Path) -> None:
    values = ("-f", made / "three-zones.yaml")
    done = helm("template", CHART, "--kube-version", "1.34", *values, "--set", "image.repository=")
    assert "image.repository is missing" in done.stderr
    digest = "sha256:" + "0" * 64
    for given, end in (
        ("image.tag=", f":{__version__}"),
        ("image.tag=x", ":x"),
        (f"image.digest={digest}", f"@{digest}"),
    ):
        images = {container["image"] for _, _, container in pods(rendered(*values, "--set", given))}
        assert images == {f"registry.example.com/photon-join{end}"}


def test_what_is_given_for_all_pods_is_in_all_of_them(objects: Objects) -> None:
    account = of_kind(objects, "ServiceAccount")
    assert [*account] == ["photon"]
    for name, template, container in pods(objects):
        spec = template["spec"]
        assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("photon", "billing")
        assert spec["securityContext"]["supplementalGroups"] == [0]
        assert spec["nodeSelector"]["disk"] == "ssd"
        assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
        assert {"name": "AWS_REGION", "value": "eu-west-1"} in container["env"]
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert mounted["/etc/ssl/own"] == "authorities"
        assert ("/var/log" in mounted) == name.startswith("datacentre-"), name
        assert {*mounted.values()} == {each["name"] for each in spec["volumes"]} | (
            {"registry"} & {*mounted.values()}
        )


def test_nothing_is_named_after_another_release(made: Path) -> None:
    """Two releases of one namespace share nothing but what the deployment files name: hosts, secrets."""
    done = helm("template", "other", CHART, "--kube-version", "1.34", "-f", made / "three-zones.yaml")
    for each in filter(None, yaml.safe_load_all(done.stdout)):
        if each["kind"] != "Service":
            assert re.match("other(-|$)", each["metadata"]["name"]), each["metadata"]["name"]
    for _, template, _ in pods([each for each in yaml.safe_load_all(done.stdout) if each]):
        for volume in template["spec"]["volumes"]:
            named = volume.get("configMap", {}).get("name") or volume.get("persistentVolumeClaim", {}).get(
                "claimName"
            )
            assert named is None or named.startswith(("other-", "photon-logs-"))


def test_egress_is_to_itself_to_name_servers_and_to_what_is_named(objects: Objects) -> None:
    spec = of_kind(objects, "NetworkPolicy")["default"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    own, names, *others, bucket = spec["egress"]
    assert own == {"to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/instance": "photon"}}}]}
    assert {each["port"] for each in names["ports"]} == {53}
    assert all("ipBlock" in each["to"][0] for each in others)
    assert bucket["ports"] == [{"port": 443}]


def test_its_alerts_are_those_of_prometheus_and_its_job_is_theirs(objects: Objects) -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/photon.rules.yml").read_text())
    [found] = of_kind(objects, "PrometheusRule").values()
    assert (found["spec"], found["metadata"]["labels"]) == (rules, {"release": "prometheus"})
    [monitor] = of_kind(objects, "ServiceMonitor").values()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "photon"}]


def test_what_it_says_at_the_end_names_what_is_there(made: Path, tmp_path: Path) -> None:
    """Helm shows notes with a cluster only: here they are rendered as any other file."""
    chart = shutil.copytree(CHART, tmp_path / "photon")
    (chart / "templates/NOTES.txt").rename(chart / "NOTES.txt")
    (chart / "templates/notes.yaml").write_text('notes: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}')
    words = ("-s", "templates/notes.yaml", "-f", made / "three-zones.yaml")
    done = helm("template", "other", chart, "--kube-version", "1.34", *words)
    assert done.returncode == 0, done.stderr
    said = yaml.safe_load(done.stdout)["notes"]
    objects = rendered("-f", made / "three-zones.yaml")
    for kind, name in re.findall(r"(deploy|service)/([a-z0-9-]+)", said):
        there = of_kind(objects, {"deploy": "Deployment", "service": "Service"}[kind])
        assert name.removeprefix("other-") in there, name
    assert said.count("photon status registry") == said.count("port-forward") == 2


def test_its_readme_has_the_values_of_the_schema() -> None:
    from deploy.helm.readme import as_markdown

    assert (CHART / "README.md").read_text() == as_markdown(), "run deploy/helm/readme.py"
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, value in values.items():
        inner = schema["properties"][name]
        for key in [name] if not isinstance(value, dict) or "description" in inner else value:
            row = name if key == name else f"{name}.{key}"
            assert f"| `{row}" in (CHART / "README.md").read_text(), row


def test_what_every_container_is_denied_and_how_much_it_gets(objects: Objects) -> None:
    assert any(pods(objects))
    for name, template, container in pods(objects):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"], name
        assert own["allowPrivilegeEscalation"] is False, name
        assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert (
            {"cpu", "memory"} == container["resources"]["limits"].keys() == container["resources"]["requests"].keys()
        )
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = json.dumps(container[probe])
            assert "photon" in asked or name.startswith(("status-", "operator-")), (name, asked)
        for mount in container["volumeMounts"]:
            assert mount.get("readOnly") or mount["name"] in ("tmp", "state", "output", "registry"), (name, mount)


def test_a_join_on_spark_is_one_pod_like_the_dispatcher_that_it_replaces(made: Path) -> None:
    services, spark = (
        {name: (template, container) for name, template, container in pods(rendered("-f", made / f"{file}.yaml"))}
        for file in ("apart", "spark")
    )
    assert spark.keys() - services.keys() == {"spark-b", "datacentre-a", "datacentre-b"}
    template, container = spark["spark-b"]
    words = "serve spark --datacentre b --listen 0.0.0.0:7050 --config /etc/photon/spark.toml"
    assert container["args"] == words.split()
    image = f"registry.example.com/photon-join:{__version__}-spark"
    assert [name for name, (_, each) in spark.items() if each["image"] == image] == ["spark-b"]
    replaced, its = services["dispatcher-b"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe] == its[probe]
    assert container["volumeMounts"] == its["volumeMounts"]
    assert template["spec"]["terminationGracePeriodSeconds"] == replaced["spec"]["terminationGracePeriodSeconds"]
    [scratch] = [each["emptyDir"] for each in template["spec"]["volumes"] if each["name"] == "tmp"]
    assert scratch == {"sizeLimit": "1Gi"}


def test_replicas_are_evicted_one_at_a_time_and_a_pipeline_together(objects: Objects) -> None:
    """A pipeline's pods have to be on one node: a budget would keep the second joiner of two on a drained one, and
    the first waits for it."""
    [(name, budget)] = of_kind(objects, "PodDisruptionBudget").items()
    labels = of_kind(objects, "StatefulSet")[name]["spec"]["template"]["metadata"]["labels"]
    assert (name, budget["spec"]["maxUnavailable"]) == ("registry", 1)
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert "photon/machine" not in labels


def test_what_answers_is_not_killed_while_it_does_not_serve(objects: Objects) -> None:
    for name, _, container in pods(objects):
        if not name.startswith(("status-", "operator-")):
            asked = {probe: container[f"{probe}Probe"]["exec"]["command"] for probe in ("readiness", "liveness")}
            assert asked["liveness"] == [*asked["readiness"][:-1], f"{asked['readiness'][-1]} --alive"], name
        started = container["startupProbe"]
        assert started["periodSeconds"] * started["failureThreshold"] >= 3600


def test_what_keeps_something_never_runs_twice(objects: Objects) -> None:
    sets = of_kind(objects, "StatefulSet")
    for name, template, _ in pods(objects):
        kind = template["metadata"]["labels"]["app.kubernetes.io/component"]
        claims = [each for each in template["spec"]["volumes"] if "persistentVolumeClaim" in each]
        assert name in sets or kind == "operator" or not claims
        assert bool(claims or kind == "registry") == bool({"state", "registry"} & {*MOUNTS[kind]})


def test_replicas_are_apart_and_a_pipeline_is_together(objects: Objects) -> None:
    for name, template, _ in pods(objects):
        spec, labels = template["spec"], template["metadata"]["labels"]
        [apart] = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["topologyKey"] == "kubernetes.io/hostname"
        if name == "registry":
            assert spec["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
        elif "photon/machine" in labels:
            [with_] = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert with_["labelSelector"]["matchLabels"]["photon/machine"] == labels["photon/datacentre"]
    zones = [
        template["spec"].get("nodeSelector")
        for _, template, _ in pods(objects)
        if template["metadata"]["labels"].get("photon/datacentre") in ("a", "b")
    ]
    assert all(zones)


def test_no_pod_sees_a_certificate_that_is_not_its_own(objects: Objects) -> None:
    issued = of_kind(objects, "Certificate")
    for name, template, _ in pods(objects):
        [certs] = [each["projected"] for each in template["spec"]["volumes"] if each["name"] == "certs"]
        secrets = [each["secret"]["name"] for each in certs["sources"]]
        assert {*secrets} <= issued.keys()
        paths = [item["path"] for each in certs["sources"] for item in each["secret"]["items"]]
        assert len({*paths}) == len(paths) == 1 + 2 * len(secrets)
        if name != "registry":
            [secret] = secrets
            labels = template["metadata"]["labels"]
            kind = labels["app.kubernetes.io/component"]
            role = kind if kind in ("operator", "spark") else "datacentre"
            assert secret == "photon-" + (role if role == "operator" else f"{role}-{labels['photon/datacentre']}")
    for name, each in issued.items():
        assert each["spec"]["dnsNames"] == [f"{name.removeprefix('photon-')}.photon.internal"]


def test_who_may_call_is_let_in_and_nobody_else(objects: Objects) -> None:
    """As the table of rights says, method by method; from other clusters only what is called across."""
    policies = of_kind(objects, "NetworkPolicy")
    closed = policies.pop("default")["spec"]
    assert "ingress" not in closed
    spark = {"app.kubernetes.io/instance": "photon", "app.kubernetes.io/component": "spark"}
    assert not closed["podSelector"]["matchLabels"].items() <= spark.items()  # its executors call its driver
    for _, template, _ in pods(objects):
        assert closed["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {
        name: [each["name"] for each in container.get("ports", ())]
        for name, _, container in pods(objects)
        if not name.startswith("operator-")
    }
    assert policies.keys() == ports.keys()
    for name, each in policies.items():
        kind = each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        rules = each["spec"]["ingress"]
        datacentre = name.rpartition("-")[2]
        executors = [{"from": [{"podSelector": {"matchLabels": {**spark, "photon/datacentre": datacentre}}}]}]
        assert [rule for rule in rules if "ports" not in rule] == executors * (kind == "spark")
        let_in: dict[str, dict[str, str | None]] = {}
        for rule in rules[: len(ports[name])]:
            [port] = [port["port"] for port in rule["ports"]]
            labels = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer]
            let_in[port] = {of["app.kubernetes.io/component"]: of.get("photon/datacentre") for of in labels}
            others = [peer for peer in rule["from"] if "podSelector" not in peer]
            if port == "page":
                assert others == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
            else:
                assert all("ipBlock" in peer for peer in others)
                assert not others or kind in ("registry", "copies", "datacentre")
        wanted = {
            "photon": {who["kind"]: datacentre if who["here"] else None for who in callers(kind)},
            "page": {"operator": None},
        }
        assert let_in == {port: wanted[port] for port in ports[name]}, name


def test_each_replica_is_called_by_its_own_name(objects: Objects) -> None:
    script = json.dumps(of_kind(objects, "StatefulSet")["registry"])
    replicas = script.partition("set -- ")[2].partition(";")[0].split()
    services = of_kind(objects, "Service")
    for number, replica in enumerate(replicas):
        wanted = services[f"registry-{replica}"]["spec"]["selector"]
        assert wanted["statefulset.kubernetes.io/pod-name"] == f"photon-registry-{number}"


def test_joiners_are_scaled_by_lag_and_nothing_else_is(objects: Objects) -> None:
    scaled = of_kind(objects, "HorizontalPodAutoscaler")
    assert scaled.keys() == {name for name in of_kind(objects, "StatefulSet") if name.startswith("joiner-")}
    for name in scaled:
        assert "replicas" not in of_kind(objects, "StatefulSet")[name]["spec"]
    [monitor] = of_kind(objects, "ServiceMonitor").values()
    wanted = monitor["spec"]["selector"]["matchLabels"]
    for name, service in of_kind(objects, "Service").items():
        assert name.startswith("status-") == (wanted.items() <= service["metadata"].get("labels", {}).items())


def test_a_cluster_has_what_is_in_its_region_under_the_names_of_the_file(made: Path) -> None:
    words = ("-f", made / "three-clusters.yaml", "-f", CHART / "values-three-clusters.yaml", "--set", "region=west")
    found = rendered(*words)
    assert of_kind(found, "StatefulSet")["registry"]["spec"]["replicas"] == 2
    assert "set -- r4 r5;" in json.dumps(of_kind(found, "StatefulSet")["registry"])
    services = of_kind(found, "Service")
    assert services["datacentre-west"]["spec"]["type"] == "LoadBalancer"
    hosts = services["registry-r4"]["metadata"]["annotations"]
    assert [*hosts.values()] == ["registry-r4.west.photon.example"]
    assert not [name for name in services if "east" in name]
    central = rendered(*words[:-1], "region=central")
    assert {name for name, _, _ in pods(central)} == {"registry"}


def test_a_datacentre_that_is_held_is_left_alone(made: Path) -> None:
    found = rendered("-f", made / "three-zones.yaml", "--set-json", 'hold=["b"]')
    for each in found:
        if each["kind"] in ("StatefulSet", "Deployment") and each["metadata"]["name"] != "photon-registry":
            held = each["metadata"]["name"].endswith("-b")
            if each["kind"] == "Deployment":
                assert each["spec"]["paused"] == held
            else:
                assert (each["spec"]["updateStrategy"]["rollingUpdate"]["partition"] > 0) == held


def test_a_pipeline_reads_a_file_of_its_own_which_waits_while_it_is_held(objects: Objects) -> None:
    for name, template, _ in pods(objects):
        [settings] = [each["configMap"]["name"] for each in template["spec"]["volumes"] if "configMap" in each]
        labels = template["metadata"]["labels"]
        own = labels["app.kubernetes.io/component"] not in ("registry", "operator")
        assert settings == "photon-settings" + own * f"-{labels.get('photon/datacentre')}", name
        assert settings.removeprefix("photon-") in of_kind(objects, "ConfigMap")


def test_names_that_yaml_takes_for_something_else_stay_names(made: Path) -> None:
    text = (CHART.parent / "three-zones.toml").read_text()
    file = made / "norway.toml"
    file.write_text(text.replace("datacentre.a", "datacentre.no"))
    done = CliRunner().invoke(main, ["up", str(file), "--helm", str(made / "norway.yaml")])
    assert done.exit_code == 0, done.output
    found = rendered("-f", made / "norway.yaml", "--set-json", 'zones={"no": "1", "b": "2"}')
    labels = [template["metadata"]["labels"] for _, template, _ in pods(found)]
    assert {each.get("photon/datacentre") for each in labels} == {"no", "b", None}
    chosen = [template["spec"].get("nodeSelector") for _, template, _ in pods(found)]
    assert {*chain.from_iterable(each.values() for each in chosen if each)} == {"1", "2"}


def test_with_ipv6_all_listen_there_and_are_called_in_brackets(made: Path) -> None:
    for name, _, container in pods(rendered("-f", made / "apart.yaml", "--set", "ipv6=true")):
        said = json.dumps(container)
        assert not {"0.0.0.0", "127.0.0.1"} & {*re.findall(r"[0-9.]+", said)}, name
        assert ("[::]:" in said) != name.startswith("operator-"), name
        assert said.count("$(POD_IP)") == said.count("[$(POD_IP)]:") == name.startswith("joiner-")


def test_memory_and_access_to_a_store_are_given_where_they_are_needed(made: Path) -> None:
    secret = '[{"secretRef": {"name": "bucket"}}]'
    given = ("--set", "memory.registry=2Gi", "--set-json", f"logs.envFrom={secret}")
    for name, _, container in pods(rendered("-f", made / "apart.yaml", *given)):
        kind = name.partition("-")[0]
        assert (container["resources"]["limits"]["memory"] == "2Gi") == (kind == "registry"), name
        assert ("envFrom" in container) == ("logs" in MOUNTS[kind]), name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("joiners.replicas=0", "at '/joiners/replicas': minimum: got 0, want 1"),
        ("memory.registry=2GB", "at '/memory/registry': '2GB' does not match pattern"),
        ("image.tga=2", "at '/image': additional properties 'tga' not allowed"),
        ("antiAffinity=never", "at '/antiAffinity': value must be one of 'required', 'preferred'"),
        ("storage.state.size=50 GB", "at '/storage/state/size': '50 GB' does not match pattern"),
        ("between.type=NodePort", "at '/between/type': value must be one of 'ClusterIP', 'LoadBalancer'"),
        ("image.digest=sha256:1", "at '/image/digest': 'sha256:1' does not match pattern"),
        ("serviceAccount.annotations=x", "at '/serviceAccount/annotations': got string, want object"),
        (
            "volumes[0].name=logs,volumes[0].mountPath=/x,volumes[0].source.emptyDir.medium=",
            "at '/volumes/0/name': 'not' failed",
        ),
        ("extraEnv[0].value=x", "at '/extraEnv/0': missing property 'name'"),
        ("zones.c=zone-c", 'zones: the deployment has no "c"; there are: a, b'),
        ("hold={c}", 'hold: the deployment has no "c"; there are: a, b'),
    ],
)
def test_a_bad_value_is_one_line(made: Path, given: str, said: str) -> None:
    done = helm("template", CHART, "--kube-version", "1.34", "-f", made / "three-zones.yaml", "--set", given)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if said in line]
    assert len(lines) == 1, done.stderr
    assert done.stderr.count("- at '") <= 1


def test_without_values_of_a_deployment_it_says_what_is_missing() -> None:
    assert "missing property 'deployment'" in helm("template", CHART, "--kube-version", "1.34").stderr
