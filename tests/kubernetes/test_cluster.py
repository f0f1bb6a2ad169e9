"""The chart on a real cluster of three nodes: installed, upgraded, restarted, scaled and drained under traffic.

PHOTON_FULL=1; as root with containerd, runc, the CNI plugins and Docker, which builds the image; elsewhere it skips
and says why. It prints the longest time in which neither pipeline joined anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.commands import photon
from tests.kubernetes.cluster.cluster import PACKAGES, PROGRAM, ZONES, Cluster
from tests.kubernetes.cluster.scaling import ADAPTER, MadeUp, serve_metrics
from tests.kubernetes.test_chart import BUILT, CHART, HELM

ROOT = Path(__file__).parents[2]
IMAGE, PAUSE = "photon-join:kubernetes", "local/pause:1"
# What they request is little, so that all of them fit on three nodes of any machine.
SETTINGS = (
    "--set", f"image.repository={IMAGE.partition(':')[0]},image.tag={IMAGE.partition(':')[2]}",
    "--set", "tls.certManager.enabled=true,serviceMonitor.enabled=true",
    "--set", ",".join(f"cpu.{kind}=50m" for kind in ("default", "registry", "datacentre", "joiner")),
)  # fmt: skip
UP_S, QUIET_S = 900.0, 10.0
RATE = 10
# Of both pipelines together; on a machine whose cores are shared with others more may be allowed.
GAP_S_MAX = float(os.environ.get("PHOTON_GAP_SECONDS", "5"))
POLL_S = 0.1
NEXT = ("--set", "podAnnotations.photon/release=next")
SCALED = (*NEXT, "--set", "joiners.autoscaling.enabled=true,joiners.autoscaling.max=2")


def missing() -> str:
    """What a cluster lacks here; empty: nothing."""
    if not os.environ.get("PHOTON_FULL"):
        return "a long run: PHOTON_FULL=1"
    if os.geteuid() != 0:
        return "needs root: it starts kubelets and containerd"
    for path in (PROGRAM, HELM, ADAPTER):
        if not path.exists():
            return f"{path} is not there: make test-kubernetes PHOTON_FULL=1 builds it with Go"
    for program in PACKAGES[:-1]:
        if shutil.which(program) is None:
            return f"needs {program}: apt-get install {' '.join(PACKAGES)}"
    return "" if Path("/usr/lib/cni/bridge").exists() else "needs the CNI plugins: containernetworking-plugins"


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


class Gaps(threading.Thread):
    """The longest time in which no output of either pipeline grew."""

    def __init__(self, outputs: list[Path]) -> None:
        super().__init__(daemon=True)
        self._outputs, self._done = outputs, threading.Event()
        self.longest = 0.0

    def _size(self) -> int:
        size = 0
        for each in self._outputs:
            for file in each.glob("joined/*"):
                with contextlib.suppress(OSError):  # compressed meanwhile
                    size += file.stat().st_ino * 2**40 + file.stat().st_size
        return size

    def run(self) -> None:
        before, since = self._size(), time.monotonic()
        while not self._done.wait(POLL_S):
            now = self._size()
            self.longest = max(self.longest, time.monotonic() - since)
            if now != before:
                before, since = now, time.monotonic()

    def __enter__(self) -> Gaps:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


class Deployment:
    """What all clusters of a deployment have in common: values, certificates, the key, the logs that come."""

    def __init__(self, directory: Path, file: str) -> None:
        self.directory, self.values = directory, directory / "values.yaml"
        self.file = shutil.copy(CHART.parent / file, directory / file)
        self.certs, self.key = directory / "certs", directory / "key"

    def prepare(self) -> None:
        for words in (("up", self.file, "--helm", self.values), ("certs", "for", self.file)):
            done = photon(*words, env={"PHOTON_SET_tls__directory": str(self.certs)} if words[0] == "certs" else {})
            assert done.code == 0, done.err
        self.key.write_bytes(os.urandom(32))

    def volume(self, claim: str) -> Path:
        return self.directory / "volumes" / claim

    @contextlib.contextmanager
    def traffic(self, rate: int, *datacentres: str) -> Iterator[list[Path]]:
        """Their logs grow, by a process of this machine; gives their outputs."""
        into = [word for each in datacentres for word in ("--into", str(self.volume(f"photon-logs-{each}")))]
        command = [str(ROOT / ".venv/bin/photon"), "feed", "serve", *into, "--rate", str(rate)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield [self.volume(f"photon-output-{each}") for each in datacentres]
        finally:
            child.terminate()
            child.wait(30)

    def check(self, *datacentres: str) -> str:
        """Each click came out once. What was found."""
        outputs = [word for each in datacentres for word in ("--output", str(self.volume(f"photon-output-{each}")))]
        logs = self.volume(f"photon-logs-{datacentres[0]}")
        done = photon("feed", "check", "--of", logs, *outputs, "--wait", "300s", timeout=400)
        assert done.code == 0, done.out + done.err
        return done.out


class Site:
    """A release in a namespace. ``volumes``: claims that it has, and the zone of each."""

    def __init__(self, cluster: Cluster, deployment: Deployment, namespace: str, volumes: dict[str, str]) -> None:
        self.cluster, self.deployment, self._namespace, self._volumes = cluster, deployment, namespace, volumes

    def prepare(self) -> None:
        self.cluster.kubectl("apply", "--server-side", "-f", str(BUILT / "crds.yaml"))
        if self._namespace != "default":
            self.cluster.kubectl("create", "namespace", self._namespace)
        certs = self.deployment.certs
        for key in sorted(certs.glob("*.key")):
            name = key.stem
            if name != "ca":
                files = (f"ca.crt={certs / 'ca.crt'}", f"tls.crt={certs / name}.crt", f"tls.key={key}")
                self.kubectl("create", "secret", "generic", f"photon-{name}", *(f"--from-file={x}" for x in files))
        self.kubectl("create", "secret", "generic", "photon-key", f"--from-file=key={self.deployment.key}")
        for claim, zone in self._volumes.items():  # root's, as a cloud's disk is: fsGroup makes them the pods'
            logs = claim.startswith("photon-logs-")
            path = self.deployment.volume(claim if claim.startswith("photon-") else f"{self._namespace}-{claim}")
            for side in ("queries", "clicks") if logs else ("",):
                (path / side).mkdir(parents=True)
            here = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
            self.apply({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{self._namespace}-{claim}"},
                "spec": {
                    "capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain", "local": {"path": str(path)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                    "claimRef": {"name": claim, "namespace": self._namespace}},
            })  # fmt: skip
            if logs:
                self.apply({
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                })  # fmt: skip

    def run(self, *command: str | Path) -> None:
        environment = {
            **os.environ, "HELM": str(HELM), "KUBECONFIG": str(self.cluster.kubeconfig),
            "KUBECTL": f"{PROGRAM} kubectl",
        }  # fmt: skip
        words = [*command, "-n", self._namespace]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-1000:]

    def changes(self) -> None:
        """Another file, and another template of pods; what is held has neither before its turn."""
        values, command = self.deployment.values, (HELM, "upgrade", "photon", CHART, *SETTINGS, "--set", "hold={a,b}")
        pods = ("get", "pods", "-l", "photon/datacentre", "-o", "jsonpath={.items[*].metadata.uid}")
        before = self.kubectl(*pods)
        values.write_text(values.read_text().replace("16MiB", "8MiB"))
        self.run(*command, "-f", values, "-f", CHART / "values-three-zones.yaml")
        self.kubectl("rollout", "status", "statefulset/photon-registry", "--timeout", "900s")
        assert self.kubectl(*pods) == before
        files = [
            self.kubectl("get", "configmap", f"photon-settings{each}", "-o", "yaml") for each in ("", "-a", "-b")
        ]
        assert ["8MiB" in each for each in files] == [True, False, False]
        self.upgrade(*NEXT)
        assert "8MiB" in self.kubectl("get", "configmap", "photon-settings-b", "-o", "yaml")

    def upgrade(self, *more: str) -> None:
        self.run(CHART.parent / "upgrade.sh", "photon", self.deployment.values, "-f",
                 CHART / "values-three-zones.yaml", *SETTINGS, *more)  # fmt: skip

    def restart(self, *which: str) -> None:
        self.kubectl("rollout", "restart", *which)
        for each in self.kubectl("get", *which, "-o", "name").split():
            self.kubectl("rollout", "status", each, "--timeout", "900s")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self._namespace, *words, stdin=stdin)

    def apply(self, thing: object) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(thing))

    def unready(self) -> list[str]:
        found = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if not any(x["type"] == "Ready" and x["status"] == "True" for x in each["status"].get("conditions", ()))
        ]

    def scales(self, made_up: MadeUp) -> None:
        """Joiners of a by the lag of all pages."""
        pages = [self.kubectl("get", "service", f"status-{where}", "-o", "jsonpath={.spec.clusterIP}:8080")
                 for where in "ab"]  # fmt: skip
        serve_metrics(self.cluster, [*pages, made_up.address])
        self.upgrade(*SCALED)
        self.cluster.wait("asked for the lag", lambda: "ValidMetricFound" in self.kubectl(
            "get", "hpa", "photon-joiner-a", "-o", "jsonpath={.status.conditions[*].reason}"), UP_S)  # fmt: skip
        assert self.joiners() == 1

    def becomes(self, joiners: int) -> None:
        self.cluster.wait(f"{joiners} joiners", lambda: self.joiners() == joiners and not self.unready(), UP_S)

    def keeps(self) -> None:
        """An upgrade leaves the second joiner alone."""
        second = ("get", "pod", "photon-joiner-a-1", "-o", "jsonpath={.metadata.uid}")
        before = self.kubectl(*second)
        self.upgrade(*SCALED)
        assert self.kubectl(*second) == before
        soon = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
        self.kubectl("patch", "hpa", "photon-joiner-a", "--type", "merge", "-p", json.dumps(soon))

    def joiners(self) -> int:
        """Of a."""
        return int(self.kubectl("get", "statefulset", "photon-joiner-a", "-o", "jsonpath={.status.replicas}"))


@pytest.fixture(scope="module")
def cluster(docker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    images = tmp_path_factory.mktemp("images") / "images.tar"
    build = ["docker", "build", "-q", "--build-arg", f"BASE_IMAGE={os.environ['BASE_IMAGE']}", "-t"]
    subprocess.run([*build, IMAGE, "--target", "photon", ROOT], capture_output=True, check=True)
    waits = f'FROM {IMAGE}\nENTRYPOINT ["/bin/sleep", "infinity"]\n'
    subprocess.run([*build, PAUSE, "-"], input=waits.encode(), capture_output=True, check=True)
    subprocess.run(["docker", "save", "-o", images, IMAGE, PAUSE], check=True)
    with Cluster(tmp_path_factory.mktemp("k8s")) as cluster:  # short: a socket's path has at most 107 bytes
        cluster.load(images)
        yield cluster


def volumes(datacentre: str, zone: str) -> dict[str, str]:
    return {f"photon-{what}-{datacentre}": zone for what in ("logs", "state", "output")}


def test_restarts_upgrades_and_drains_under_traffic_lose_and_double_nothing(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = Deployment(tmp_path, "three-zones.toml")
    a = "[datacentre.a]\n"
    deployment.file.write_text(deployment.file.read_text().replace(a, f"{a}joiners = 0\n"))  # pods, to be scaled
    deployment.prepare()
    replicas = {f"registry-photon-registry-{number}": zone for number, zone in enumerate(ZONES)}
    site = Site(cluster, deployment, "default", {**volumes("a", ZONES[0]), **volumes("b", ZONES[1]), **replicas})
    site.prepare()
    rows: list[tuple[str, float, float]] = []

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    def happens(what: str, does: Callable[[], object]) -> None:
        began = time.monotonic()
        with Gaps(outputs) as gaps:
            does()
            cluster.wait(f"all ready after: {what}", lambda: not site.unready(), UP_S)
            time.sleep(QUIET_S)
        rows.append((what, time.monotonic() - began - QUIET_S, gaps.longest))
        say(f"| {what} | {rows[-1][1]:.0f} s | {rows[-1][2]:.1f} s | {os.getloadavg()[0]:.0f} |")

    def drain(node: str) -> None:
        site.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "600s")
        time.sleep(QUIET_S)
        site.kubectl("uncordon", node)

    with deployment.traffic(RATE, "a", "b") as outputs:
        site.upgrade()
        cluster.wait("joins in both", lambda: all([*each.glob("joined/*")] for each in outputs), UP_S)
        time.sleep(2 * QUIET_S)
        happens("nothing", lambda: time.sleep(QUIET_S))
        happens("replicas restarted", lambda: site.restart("statefulset/photon-registry"))
        happens("pipeline a restarted", lambda: site.restart("statefulset,deployment", "-l", "photon/datacentre=a"))
        happens("upgraded", site.changes)
        happens("node of a drained", lambda: drain("node1"))
        made_up = MadeUp("a")
        happens("scaling turned on", lambda: site.scales(made_up))
        made_up.lag_s = 60
        happens("a second joiner by lag", lambda: site.becomes(2))
        happens("upgraded with two", site.keeps)
        made_up.lag_s = 0
        happens("one joiner again", lambda: site.becomes(1))
    say(deployment.check("a", "b"))
    site.run(HELM, "uninstall", "photon", "--wait")
    assert [(what, gap) for what, _, gap in rows if gap > GAP_S_MAX] == []


def test_clusters_that_only_call_each_other_by_name_join_once_and_one_may_be_away(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Namespaces stand for clusters; the name server, like external-dns, has the names of their load balancers."""
    deployment = Deployment(tmp_path, "three-clusters.toml")
    deployment.prepare()
    a, b, c = ZONES
    volumes_of = {
        "east": {**volumes("east", a), "registry-photon-registry-0": a, "registry-photon-registry-1": b},
        "central": {"registry-photon-registry-0": c},
        "west": {**volumes("west", b), "registry-photon-registry-0": b, "registry-photon-registry-1": c},
    }
    sites = {region: Site(cluster, deployment, region, there) for region, there in volumes_of.items()}
    for site in sites.values():
        site.prepare()
    with deployment.traffic(RATE, "east", "west") as outputs:
        for region, site in sites.items():
            site.run(HELM, "upgrade", "--install", "photon", CHART, "-f", deployment.values, "-f",
                     CHART / "values-three-clusters.yaml", *SETTINGS, "--set", f"region={region}")  # fmt: skip
        cluster.wait("joins in both", lambda: all([*each.glob("joined/*")] for each in outputs), UP_S)
        with Gaps(outputs) as gaps:
            cluster.kubectl("-n", "central", "scale", "statefulset/photon-registry", "--replicas", "0")
            cluster.wait("central away", lambda: not cluster.kubectl("-n", "central", "get", "pods", "-o", "name"))
            time.sleep(2 * QUIET_S)
    found = deployment.check("east", "west")
    with capsys.disabled():
        print(f"central away: longest gap {gaps.longest:.1f} s, load {os.getloadavg()[0]:.0f}; {found}", flush=True)
    assert gaps.longest <= GAP_S_MAX
