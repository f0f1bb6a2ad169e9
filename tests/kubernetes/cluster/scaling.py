"""Prometheus and its adapter next to a cluster, by the adapter's rule of docs/kubernetes.md: what autoscalers ask."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.kubernetes.cluster.cluster import PROGRAM, ROOT, Cluster

ADAPTER = PROGRAM.parent / "adapter"
PORT, PROMETHEUS = 17450, 17490
BRIDGE = "10.245.1.1"  # this machine, as pods and Services reach it
GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"


class MadeUp:
    """A page of metrics with a datacentre's lag as the test wants it, besides what the status pages say."""

    def __init__(self, datacentre: str) -> None:
        self.lag_s = 0.0
        made_up = self

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                labels = f'datacentre="{datacentre}",join="made-up"'
                self.wfile.write(f"photon_dispatcher_lag_seconds{{{labels}}} {made_up.lag_s}\n".encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.address = f"127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()


def rule() -> str:
    [found] = re.findall(r"```yaml\n(externalRules:\n.*?)```", (ROOT / "docs" / "kubernetes.md").read_text(), re.S)
    return str(found)


def serve_metrics(cluster: Cluster, pages: list[str]) -> None:
    """``pages``: host:port of those that Prometheus reads; it adds the namespace, as its operator does."""
    d = cluster.directory / "scaling"
    d.mkdir()
    (d / "rule.yaml").write_text(rule())
    (d / "prometheus.yaml").write_text(json.dumps({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "photon", "honor_labels": True, "static_configs": [
            {"targets": pages, "labels": {"namespace": "default"}}]}],
    }))  # fmt: skip
    cluster.start("prometheus", "prometheus", "--config.file", str(d / "prometheus.yaml"), "--storage.tsdb.path",
                  str(d / "prometheus"), "--web.listen-address", f"127.0.0.1:{PROMETHEUS}", program=None)  # fmt: skip
    config = str(cluster.kubeconfig)
    cluster.start("adapter", "--lister-kubeconfig", config, "--authentication-kubeconfig", config,
                  "--authorization-kubeconfig", config, "--authentication-skip-lookup", "--secure-port", str(PORT),
                  "--cert-dir", str(d / "certs"), "--prometheus-url", f"http://127.0.0.1:{PROMETHEUS}",
                  "--config", str(d / "rule.yaml"), "--metrics-relist-interval", "5s", "--metrics-max-age", "1m",
                  program=ADAPTER)  # fmt: skip
    for each in (
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter"},
         "spec": {"ports": [{"port": 443, "targetPort": PORT}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"name": "adapter", "labels": {"kubernetes.io/service-name": "adapter"}},
         "endpoints": [{"addresses": [BRIDGE]}], "ports": [{"name": "", "port": PORT}]},
        # The API server shows this adapter no certificate: who asks is nobody to it.
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "metrics"},
         "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list", "watch"]},
                   {"nonResourceURLs": ["*"], "verbs": ["get"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "metrics"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics"},
         "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}]},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{VERSION}.{GROUP}"},
         "spec": {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
                  "insecureSkipTLSVerify": True, "service": {"name": "adapter", "namespace": "default"}}},
    ):  # fmt: skip
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(each))
