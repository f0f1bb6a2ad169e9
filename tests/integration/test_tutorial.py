"""Runs pages as written, in an empty directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from photon.supervision.ports import free_ports
from tests.integration.commands import photon
from tests.integration.operations.runbook import Run, steps
from tests.integration.operations.shell import Shell

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "least"), [("tutorial.md", 12), ("chains.md", 4), ("computations.md", 4), ("tables.md", 2)]
)
def test_a_new_user_gets_through(tmp_path: Path, page: str, least: int) -> None:
    text = (DOCS / page).read_text()
    named = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", text)))
    for port, free in zip(named, free_ports(len(named)), strict=True):  # others may run the tutorial's own
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    directory = tmp_path / "shop"
    directory.mkdir()
    shell = Shell(directory, {})
    blocks = [step for step in steps(page, text) if isinstance(step, Run)]
    assert len(blocks) > least
    try:
        for block in blocks:
            shell.run(page, block)
    finally:
        if (directory / ".photon-run").exists():
            photon("down", directory / "photon.toml")
