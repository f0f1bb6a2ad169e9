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
from tests.kubernetes.test_chart import BUILT, HELM

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "helm" / "three-zones.toml"
IMAGE, PAUSE = "photon:kubernetes", "local/pause:1"
REQUESTING = ("default", "registry", "joiner", "dispatcher", "eventstore")
"""Little, so that all of them fit on three nodes of any machine."""
UP_S, QUIET_S = 900.0, 10.0
GAP_S_MAX = float(os.environ.get("PHOTON_GAP_SECONDS", "5"))
"""Of both pipelines together; on a machine whose cores are shared with others more may be allowed."""
POLL_S = 0.1


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


class Site:
    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self._directory = cluster, directory
        self.values = directory / "values.yaml"

    def volume(self, name: str) -> Path:
        return self._directory / "volumes" / name

    def prepare(self) -> None:
        """Key, certificates, volumes, and a generator of logs for both pipelines."""
        certs = self._directory / "certs"
        for words in (("up", FILE, "--helm", self.values), ("certs", "for", FILE)):
            done = photon(*words, env={"PHOTON_SET_tls__directory": str(certs)} if words[0] == "certs" else {})
            assert done.code == 0, done.err
        for key in sorted(certs.glob("*.key")):
            name = key.stem
            if name != "ca":
                files = (f"ca.crt={certs / 'ca.crt'}", f"tls.crt={certs / name}.crt", f"tls.key={key}")
                self.kubectl("create", "secret", "generic", f"photon-{name}", *(f"--from-file={x}" for x in files))
        (self._directory / "key").write_bytes(os.urandom(32))
        self.kubectl("create", "secret", "generic", "photon-key", f"--from-file=key={self._directory / 'key'}")
        zones = {f"photon-{what}-{where}": zone for what in ("logs", "state", "output")
                 for where, zone in zip("ab", ZONES[:2], strict=True)}  # fmt: skip
        zones |= {f"registry-registry-{number}": zone for number, zone in enumerate(ZONES)}
        for claim, zone in zones.items():  # root's, as a cloud's disk is: fsGroup makes them the pods'
            for side in ("queries", "clicks") if "logs" in claim else ("",):
                (self.volume(claim) / side).mkdir(parents=True)
            here = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
            self.apply({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claim}, "spec": {
                    "capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain", "local": {"path": str(self.volume(claim))},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                    "claimRef": {"name": claim, "namespace": "default"}},
            })  # fmt: skip
        self.kubectl("apply", "--server-side", "-f", str(BUILT / "crds.yaml"))
        for where in "ab":
            self.apply({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"photon-logs-{where}"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            })  # fmt: skip

    @contextlib.contextmanager
    def traffic(self, rate: int) -> Iterator[None]:
        """Both pipelines' logs grow, by a process of this machine."""
        into = [word for where in "ab" for word in ("--into", str(self.volume(f"photon-logs-{where}")))]
        command = [str(ROOT / ".venv/bin/photon"), "feed", "serve", *into, "--rate", str(rate)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            child.terminate()
            child.wait(30)

    def upgrade(self, *more: str) -> None:
        environment = {
            **os.environ, "HELM": str(HELM), "KUBECONFIG": str(self.cluster.kubeconfig),
            "KUBECTL": f"{PROGRAM} kubectl",
        }  # fmt: skip
        command = [str(ROOT / "deploy/helm/upgrade.sh"), "photon", str(self.values),
                   "-f", str(ROOT / "deploy/helm/photon/values-three-zones.yaml"), "--set",
                   f"image.repository={IMAGE.partition(':')[0]},image.tag={IMAGE.partition(':')[2]}",
                   "--set", ",".join(f"cpu.{kind}=50m" for kind in REQUESTING),
                   "--set", "tls.certManager.enabled=true,serviceMonitor.enabled=true", *more]  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-1000:]

    def restart(self, *which: str) -> None:
        self.kubectl("rollout", "restart", *which)
        for each in self.kubectl("get", *which, "-o", "name").split():
            self.kubectl("rollout", "status", each, "--timeout", "900s")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*words, stdin=stdin)

    def apply(self, thing: object) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(thing))

    def unready(self) -> list[str]:
        found = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if not any(x["type"] == "Ready" and x["status"] == "True" for x in each["status"].get("conditions", ()))
        ]

    def scales(self) -> None:
        """Another joiner where the lag is too long, as long as it is; an upgrade meanwhile leaves it alone."""
        pages = [self.kubectl("get", "service", f"status-{where}", "-o", "jsonpath={.spec.clusterIP}:8080")
                 for where in "ab"]  # fmt: skip
        made_up = MadeUp("a")
        serve_metrics(self.cluster, [*pages, made_up.address])
        scaled = ("--set", "joiners.autoscaling.enabled=true,joiners.autoscaling.max=2")
        self.upgrade(*scaled)
        self.cluster.wait("asked for the lag", lambda: "ValidMetricFound" in self.kubectl(
            "get", "hpa", "joiner-a", "-o", "jsonpath={.status.conditions[*].reason}"), UP_S)  # fmt: skip
        assert self.joiners() == 1
        made_up.lag_s = 60
        self.cluster.wait("a second joiner", lambda: self.joiners() == 2 and not self.unready(), UP_S)
        second = ("get", "pod", "joiner-a-1", "-o", "jsonpath={.metadata.uid}")
        before = self.kubectl(*second)
        self.upgrade(*scaled)
        assert self.kubectl(*second) == before
        soon = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
        self.kubectl("patch", "hpa", "joiner-a", "--type", "merge", "-p", json.dumps(soon))
        made_up.lag_s = 0
        self.cluster.wait("one joiner again", lambda: self.joiners() == 1, UP_S)

    def joiners(self) -> int:
        """Of a."""
        return int(self.kubectl("get", "statefulset", "joiner-a", "-o", "jsonpath={.status.replicas}"))

    def outputs(self) -> list[Path]:
        return [self.volume(f"photon-output-{where}") for where in "ab"]


@pytest.fixture
def site(docker: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    images = tmp_path / "images.tar"
    build = ["docker", "build", "-q", "--build-arg", f"BASE_IMAGE={os.environ['BASE_IMAGE']}", "-t"]
    subprocess.run([*build, IMAGE, "--target", "photon", ROOT], capture_output=True, check=True)
    waits = f'FROM {IMAGE}\nENTRYPOINT ["/bin/sleep", "infinity"]\n'
    subprocess.run([*build, PAUSE, "-"], input=waits.encode(), capture_output=True, check=True)
    subprocess.run(["docker", "save", "-o", images, IMAGE, PAUSE], check=True)
    with Cluster(tmp_path_factory.mktemp("k8s")) as cluster:  # short: a socket's path has at most 107 bytes
        cluster.load(images)
        yield Site(cluster, tmp_path)


def test_restarts_upgrades_and_drains_under_traffic_lose_and_double_nothing(site: Site) -> None:
    site.prepare()
    rows: list[tuple[str, float, float]] = []

    def happens(what: str, does: Callable[[], object]) -> None:
        began = time.monotonic()
        with Gaps(site.outputs()) as gaps:
            does()
            site.cluster.wait(f"all ready after: {what}", lambda: not site.unready(), UP_S)
            time.sleep(QUIET_S)
        rows.append((what, time.monotonic() - began - QUIET_S, gaps.longest))
        print(f"{what}: {rows[-1][1]:.0f} s, longest gap {rows[-1][2]:.1f} s", flush=True)

    def drain(node: str) -> None:
        site.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "600s")
        time.sleep(QUIET_S)
        site.kubectl("uncordon", node)

    with site.traffic(20):
        site.upgrade()
        site.cluster.wait("joins in both", lambda: all([*each.glob("joined/*")] for each in site.outputs()), UP_S)
        time.sleep(2 * QUIET_S)
        happens("replicas restarted", lambda: site.restart("statefulset/registry"))
        happens("pipeline a restarted", lambda: site.restart("statefulset,deployment", "-l", "photon/datacentre=a"))
        happens("upgraded", lambda: site.upgrade("--set", "podAnnotations.photon/release=next"))
        happens("node of a drained", lambda: drain("node1"))
        happens("joiners of a scaled", site.scales)
    outputs = [word for each in site.outputs() for word in ("--output", str(each))]
    logs = str(site.volume("photon-logs-a"))
    done = photon("feed", "check", "--of", logs, *outputs, "--wait", "300s", "-o", "json", timeout=400)
    assert done.code == 0, done.out + done.err
    print(done.out)
    assert [(what, gap) for what, _, gap in rows if gap > GAP_S_MAX] == []
