"""The workflows only call targets of the Makefile, may read alone, and use actions of a fixed version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
MAKE = re.compile(r"make ([a-z-]+)((?: [A-Z]+=\w+)*)")
ACTION = re.compile(r"actions/[a-z-]+@(v\d+|[0-9a-f]{40})|pypa/gh-action-pypi-publish@release/v1")
WRITES = {("release.yml", "id-token"), ("release.yml", "attestations")}
READ = {"contents": "read"}


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_those_that_are_wanted() -> None:
    called = {
        path.name: [
            MAKE.fullmatch(step["run"])[1] for step in steps(yaml.safe_load(path.read_text())) if "run" in step
        ]
        for path in WORKFLOWS
    }
    assert called == {
        "gate.yml": ["gate"], "lint.yml": ["lint"], "nightly.yml": ["soak", "audit"],
        "release.yml": ["audit", "sbom", "dist"],
    }  # fmt: skip


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_small_and_may_do_little(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert set(workflow) <= {"name", True, "permissions", "concurrency", "jobs"}  # YAML 1.1 reads "on" as true
    assert (workflow["name"], workflow["permissions"]) == (path.stem, READ)
    for job in workflow["jobs"].values():
        granted = job.get("permissions", READ)
        writes = {(path.name, name) for name, level in granted.items() if level != "read"}
        assert writes <= WRITES
        assert 0 < job["timeout-minutes"] <= 360
    for step in steps(workflow):
        assert len({"run", "uses"} & set(step)) == 1
        if "run" in step:
            made = MAKE.fullmatch(step["run"])
            assert made is not None, step
            assert made[1] in TARGETS
        else:
            assert ACTION.fullmatch(step["uses"]), step
            if step["uses"].startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}
    assert "secrets." not in path.read_text()
