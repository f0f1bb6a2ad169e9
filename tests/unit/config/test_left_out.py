"""Modules that a process of ours does not import at its start, even if they are installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from photon.config.left_out import left_out
from tests.deployments import deployment, join
from tests.integration.commands import until

UNUSED = (
    "rich",
    "pygments",
    "attr",
    "prometheus_client",
    "http.server",
    "cryptography",
    "importlib.metadata",
    "email",
)
ROOMS = tuple(f"photon.{room}" for room in ("adapters", "dispatcher", "eventstore", "joiner", "outputs", "spark"))
IMPORTED = "import {modules}, sys; print(*sys.modules)"
JOIN = (
    "photon.cli.join, photon.cli.view, photon.local_join.join, photon.local_join.parts, photon.eventstore.engine, "
    "photon.assembly.datacentre, photon.assembly.dispatcher, photon.assembly.eventstore, photon.assembly.joiner, "
    "photon.dispatcher.process, photon.eventstore.process, photon.joiner.process"
)


@pytest.mark.parametrize(
    ("modules", "unused", "most"),
    [
        (JOIN, ("grpc", *UNUSED), 355),
        ("photon; photon.read; import photon", ("grpc", "google.protobuf", *UNUSED), 168),
        ("photon.eventstore.process", UNUSED, 155),
        ("photon.assembly.registry", UNUSED, 120),
        ("photon.status.process", (*UNUSED, *ROOMS), 80),
    ],
)
def test_a_start_imports_nothing_that_it_does_not_use(modules: str, unused: tuple[str, ...], most: int) -> None:
    """``most``: modules of Photon; most of a start is importing them, some 1.5 ms each."""
    code = IMPORTED.format(modules=modules)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    imported = said.stdout.split()
    assert not set(unused) & set(imported)
    assert sum(name.partition(".")[0] == "photon" for name in imported) <= most


def test_a_running_status_page_loads_no_other_part_of_its_datacentre(tmp_path: Path) -> None:
    file = deployment(tmp_path, join(), "status")
    command = [sys.executable, "-X", "importtime", "-m", "photon", "serve", "status", "--config", str(file)]
    with (tmp_path / "said").open("wb") as said:
        page = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        until(lambda: b"status serves" in (tmp_path / "said").read_bytes(), 60.0, "it serves")
    finally:
        page.terminate()
        page.wait()
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "said").read_text().splitlines()}
    own_modules = {name for name in imported if name.partition(".")[0] == "photon"}
    assert len(own_modules) <= 105
    rooms = {name for name in own_modules if name.startswith(ROOMS)}
    assert rooms == {"photon.adapters", "photon.adapters.crumbs"}  # how its process's predecessor ended


def test_what_was_left_out_can_be_imported_afterwards() -> None:
    with left_out("this"), pytest.raises(ImportError):
        importlib.import_module("this")
    assert importlib.util.find_spec("this") is not None


def test_what_is_there_already_stays() -> None:
    with left_out("pytest"):
        assert importlib.import_module("pytest") is pytest
    assert sys.modules["pytest"] is pytest
