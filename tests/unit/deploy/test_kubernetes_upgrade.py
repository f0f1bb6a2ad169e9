"""upgrade.sh continues with the next datacentre only when it has seen that the last one is up."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "deploy" / "helm" / "upgrade.sh"
VALUES = json.dumps(
    {"deployment": {"datacentres": [{"name": "a"}, {"name": "no"}], "replicas": [{"name": "registry-r1"}]}}, indent=2
)


def upgrade(at: Path, kubectl: str, *flags: str) -> tuple[int, str, list[str]]:
    """Exit code, output, calls of both programs. ``kubectl``: its reaction when asked what exists."""
    (at / "values.yaml").write_text(VALUES)
    for name, does in (("helm", ":"), ("kubectl", f'case "$*" in *"get statefulset"*) {kubectl};; esac')):
        (at / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {at}/calls\n{does}\n')
        (at / name).chmod(0o755)
    programs = {**os.environ, "HELM": str(at / "helm"), "KUBECTL": str(at / "kubectl")}
    command = [SCRIPT, "photon", at / "values.yaml", *flags]
    done = subprocess.run(command, env=programs, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, (at / "calls").read_text().splitlines()


def test_one_datacentre_after_the_other(tmp_path: Path) -> None:
    code, said, calls = upgrade(tmp_path, "echo statefulset.apps/x")
    assert (code, said) == (0, "a is up\nno is up\n")
    done = [call for call in calls if call.startswith("helm") or "rollout" in call]
    assert [call.partition(" ")[0] for call in done] == ["helm", "kubectl", "kubectl"] * 2
    assert [call.rpartition(" ")[2] for call in done if "helm" in call] == ['hold=["no"]', "hold=[]"]


@pytest.mark.parametrize(
    ("kubectl", "words"), [("echo 'not allowed' >&2; exit 1", "not allowed"), (":", "is it in another namespace?")]
)
def test_what_it_cannot_see_is_not_up(tmp_path: Path, kubectl: str, words: str) -> None:
    code, said, calls = upgrade(tmp_path, kubectl)
    assert code == 1
    assert words in said
    assert "is up" not in said
    assert len([call for call in calls if call.startswith("helm")]) == 1


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        (("-n", "joins", "--set", "x=1"), "--namespace=joins"),
        (("--namespace=joins",), "--namespace=joins"),
        (("--kube-context", "east", "-f", "more.yaml"), "--context=east"),
        (("--kubeconfig", "file"), "--kubeconfig=file"),
    ],
)
def test_kubectl_looks_where_helm_installs(tmp_path: Path, flags: tuple[str, ...], asked: str) -> None:
    code, said, calls = upgrade(tmp_path, "echo statefulset.apps/x", *flags)
    assert code == 0, said
    for call in calls:
        if call.startswith("helm"):
            assert " ".join(flags) in call
        else:
            assert call.split()[1] == asked
