"""A cluster of Kubernetes on this machine: its control plane, and a kubelet and a containerd for each node.

    python tests/kubernetes/cluster/cluster.py DIRECTORY

Runs until its standard input ends, and writes ``DIRECTORY/kubeconfig``. As root, on Linux, with containerd, runc and
the CNI plugins of Debian. Nodes share the machine's network; each has a bridge of its own. Names are answered by a
name server for Services alone. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "build" / "kubernetes" / "kubernetes"
PACKAGES = ("containerd", "runc", "iptables", "conntrack", "prometheus", "containernetworking-plugins")
ZONES = ("zone-a", "zone-b", "zone-c")
SERVICES, DNS = "10.96.0.0/16", "10.96.0.10"
TOKEN = "of-this-machine-alone"
API, ETCD, ETCD_PEER = 17443, 17379, 17380
PODS_TO_PODS = ("-s", "10.245.0.0/16", "-d", "10.245.0.0/16", "-j", "ACCEPT")
START_S = 180.0
CGROUPS = Path("/sys/fs/cgroup")
CONTAINERS = (CGROUPS / "cpu" if (CGROUPS / "cpu").exists() else CGROUPS) / "k8s.io"
SHARES = 8192


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self._children: list[subprocess.Popen[bytes]] = []
        self._bridges: list[str] = []
        self._context = ssl._create_unverified_context()

    def __enter__(self) -> Cluster:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._control_plane()
            for number, zone in enumerate(ZONES, 1):
                self._node(number, zone)
            self._proxy()
            _checked("iptables", "-I", "FORWARD", *PODS_TO_PODS)  # Docker drops what it does not know
            threading.Thread(target=self._names, daemon=True).start()
            self.wait("nodes ready", lambda: self._ready() == len(ZONES))
            # All containers together weigh as much as one other process otherwise: nothing starts on a busy machine.
            with contextlib.suppress(OSError):
                CONTAINERS.mkdir(exist_ok=True)
                (CONTAINERS / "cpu.shares").write_text(str(SHARES))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all of it: first who starts pods, then the pods."""
        for child in reversed(self._children):
            child.send_signal(signal.SIGTERM)
        for child in reversed(self._children):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
            if child.poll() is None:
                child.kill()
        self._end_containers()
        _run(str(PROGRAM), "kube-proxy", "--cleanup")
        _run("iptables", "-D", "FORWARD", *PODS_TO_PODS)
        _run("ip", "address", "del", f"{DNS}/32", "dev", "lo")
        for bridge in self._bridges:
            _run("ip", "link", "delete", bridge)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.directory)):
                _run("umount", "-l", line.split()[1])

    # -- the control plane --------------------------------------------------------------------------------------
    def _control_plane(self) -> None:
        d = self.directory
        (d / "tokens").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        _checked("openssl", "genrsa", "-out", str(d / "accounts.key"), "2048")
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {
                "server": f"https://127.0.0.1:{API}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        }))  # fmt: skip
        self.start("etcd", "etcd", "--data-dir", str(d / "etcd"), "--unsafe-no-fsync",
                    "--listen-client-urls", f"http://127.0.0.1:{ETCD}",
                    "--advertise-client-urls", f"http://127.0.0.1:{ETCD}",
                    "--listen-peer-urls", f"http://127.0.0.1:{ETCD_PEER}",
                    "--initial-advertise-peer-urls", f"http://127.0.0.1:{ETCD_PEER}",
                    "--initial-cluster", f"default=http://127.0.0.1:{ETCD_PEER}")  # fmt: skip
        self.start("apiserver", "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{ETCD}",
                    "--secure-port", str(API), "--bind-address", "127.0.0.1", "--cert-dir", str(d / "api-certs"),
                    "--service-cluster-ip-range", SERVICES, "--token-auth-file", str(d / "tokens"),
                    "--service-account-issuer", "https://here", "--authorization-mode", "RBAC",
                    "--service-account-key-file", str(d / "accounts.key"),
                    "--service-account-signing-key-file", str(d / "accounts.key"),
                    "--endpoint-reconciler-type", "none",
                    "--kubelet-preferred-address-types", "InternalIP")  # fmt: skip
        self.wait("API answers", lambda: self.get("/readyz?verbose=false", raw=True) is not None)
        config = ("--kubeconfig", str(self.kubeconfig))
        self.start("controllers", "kube-controller-manager", *config, "--leader-elect=false",
                    "--service-account-private-key-file", str(d / "accounts.key"),
                    "--node-monitor-grace-period", "40s",
                    "--horizontal-pod-autoscaler-sync-period", "5s")  # fmt: skip
        self.start("scheduler", "kube-scheduler", *config, "--leader-elect=false")

    def _proxy(self) -> None:
        (self.directory / "proxy.json").write_text(json.dumps({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)}, "clusterCIDR": "10.245.0.0/16",
            "conntrack": {"maxPerCore": 0}, "hostnameOverride": "node1",
            "metricsBindAddress": "127.0.0.1:17249", "healthzBindAddress": "127.0.0.1:17256",
        }))  # fmt: skip
        self.start("proxy", "kube-proxy", "--config", str(self.directory / "proxy.json"))

    # -- a node ---------------------------------------------------------------------------------------------------
    def _node(self, number: int, zone: str) -> None:
        d, name = self.directory / f"node{number}", f"node{number}"
        for each in ("cni", "kubelet", "manifests"):
            (d / each).mkdir(parents=True, exist_ok=True)
        bridge = f"photon-k{number}"
        self._bridges.append(bridge)
        (d / "cni" / "10.conflist").write_text(json.dumps({
            "cniVersion": "0.4.0", "name": bridge, "plugins": [
                {"type": "bridge", "bridge": bridge, "isGateway": True, "ipMasq": False, "hairpinMode": True,
                 "ipam": {"type": "host-local", "dataDir": str(d / "ipam"), "subnet": f"10.245.{number}.0/24",
                          "routes": [{"dst": "0.0.0.0/0"}]}},
            ],
        }))  # fmt: skip
        pause = "local/pause:1"
        (d / "containerd.toml").write_text(f"""version = 2
root = "{d}/containerd"
state = "{d}/state"
[grpc]
  address = "{d}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_port = "{17500 + number}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{d}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.internal.v1.opt"]
  path = "{d}/opt"
""")
        (d / "kubelet.json").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "port": 17260 + number, "readOnlyPort": 0,
            "healthzPort": 17270 + number, "cgroupDriver": "cgroupfs", "cgroupRoot": "/", "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [], "failSwapOn": False, "failCgroupV1": False, "clusterDNS": [DNS],
            "clusterDomain": "cluster.local", "containerRuntimeEndpoint": f"unix://{d}/containerd.sock",
            "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "50Mi"},
            "localStorageCapacityIsolation": False,
            "syncFrequency": "10s", "nodeStatusUpdateFrequency": "5s", "maxPods": 60,
            "volumePluginDir": str(d / "plugins"), "makeIPTablesUtilChains": number == 1,
            "podLogsDir": str(d / "logs"), "resolvConf": "/etc/resolv.conf",
            "protectKernelDefaults": False,
        }))  # fmt: skip
        self.start(f"{name}-containerd", "containerd", "--config", str(d / "containerd.toml"), program=None)
        self.wait(f"{name}'s containerd", (d / "containerd.sock").exists)
        self.start(f"{name}-kubelet", "kubelet", "--config", str(d / "kubelet.json"),
                    "--kubeconfig", str(self.kubeconfig), "--root-dir", str(d / "kubelet"),
                    "--hostname-override", name, "--cert-dir", str(d / "pki"),
                    "--node-labels", f"topology.kubernetes.io/zone={zone}", "--v", "2")  # fmt: skip

    def load(self, image: Path) -> None:
        """Gives an image, as docker save writes it, to every node."""
        for socket_ in sorted(self.directory.glob("node*/containerd.sock")):
            _checked("ctr", "--address", str(socket_), "-n", "k8s.io", "images", "import", str(image))

    def _end_containers(self) -> None:
        """What is left of them when nobody starts them again, and the shims of this cluster's containerds."""
        for listed in CONTAINERS.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                for each in listed.read_text().split():
                    os.kill(int(each), signal.SIGKILL)
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = command.read_bytes()
                if b"containerd-shim" in words and os.fsencode(self.directory) in words:
                    os.kill(int(command.parent.name), signal.SIGKILL)

    # -- names ----------------------------------------------------------------------------------------------------
    def _names(self) -> None:
        """A records of Services, at the address of the cluster's name server, on this machine's loopback."""
        _run("ip", "address", "add", f"{DNS}/32", "dev", "lo")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.bind((DNS, 53))
            known: dict[str, str] = {}
            read = 0.0
            while True:
                question, who = asked.recvfrom(4096)
                if time.monotonic() - read > 2.0:
                    with contextlib.suppress(OSError, ValueError):
                        known = {name: x["spec"]["clusterIP"] for x in self.get("/api/v1/services")["items"]
                                 for name in names_of(x["metadata"])}  # fmt: skip
                        read = time.monotonic()
                with contextlib.suppress(OSError):
                    asked.sendto(answer(question, known), who)

    # -- asking ---------------------------------------------------------------------------------------------------
    def get(self, path: str, *, raw: bool = False) -> Any:
        """Raises OSError."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{API}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._context) as reply:
                return reply.read() if raw else json.load(reply)
        except OSError:
            if raw:
                return None
            raise

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run([PROGRAM, "kubectl", "--kubeconfig", self.kubeconfig, *words], input=stdin,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr.strip()}"
        return done.stdout

    def _ready(self) -> int:
        nodes = self.get("/api/v1/nodes")["items"]
        return sum(x["type"] == "Ready" and x["status"] == "True" for n in nodes for x in n["status"]["conditions"])

    def wait(self, what: str, done: Callable[[], object], seconds: float = START_S) -> None:
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                if done():
                    return
            ended = [child.args[-1] for child in self._children if child.poll() is not None]
            assert not ended, f"{what}: ended: {ended}: see {self.directory}/logs"
            assert time.monotonic() < until, f"not {what} within {seconds:.0f} s: see {self.directory}/logs"
            time.sleep(0.3)

    def start(self, name: str, *words: str, program: Path | None = PROGRAM) -> None:
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        command = [str(program), *words] if program else list(words)
        with open(logs / name, "wb") as log:
            self._children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   start_new_session=True))  # fmt: skip


def names_of(service: dict[str, Any]) -> Iterator[str]:
    yield f"{service['name']}.{service['namespace']}.svc.cluster.local"
    yield from filter(None, [service.get("annotations", {}).get("external-dns.alpha.kubernetes.io/hostname")])


def answer(question: bytes, known: dict[str, str]) -> bytes:
    """To one question for an A record; for another, or a name that is not known, that there is none."""
    name, at = [], 12
    while question[at]:
        name.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace"))
        at += 1 + question[at]
    kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
    found = known.get(".".join(name).lower())
    records = socket.inet_aton(found) if found and kind == 1 and found[0].isdigit() else b""
    head = question[:2] + struct.pack("!HHHHH", 0x8580 | (0 if found else 3), 1, 1 if records else 0, 0, 0)
    record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 2, 4) + records if records else b""
    return head + question[12 : at + 5] + record


def _run(*command: str) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def _checked(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)


if __name__ == "__main__":
    with Cluster(Path(sys.argv[1]).resolve()):
        print("ready", flush=True)
        sys.stdin.read()
