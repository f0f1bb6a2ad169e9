"""Modules that a process of ours does not import at its start, even if they are installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from photon.config.left_out import left_out

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
IMPORTED = "import {modules}, sys; print(*sys.modules)"
JOIN = "photon.cli.join, photon.cli.view, photon.local_join.join, photon.local_join.parts, photon.eventstore.engine"


@pytest.mark.parametrize(
    ("modules", "unused", "most"),
    [
        (JOIN, ("grpc", *UNUSED), 345),
        ("photon; photon.read; import photon", ("grpc", "google.protobuf", *UNUSED), 168),
        ("photon.eventstore.process", UNUSED, 155),
        ("photon.assembly.registry", UNUSED, 120),
    ],
)
def test_a_start_imports_nothing_that_it_does_not_use(modules: str, unused: tuple[str, ...], most: int) -> None:
    """``most``: modules of Photon; most of a start is importing them, some 1.5 ms each."""
    code = IMPORTED.format(modules=modules)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    imported = said.stdout.split()
    assert not set(unused) & set(imported)
    assert sum(name.partition(".")[0] == "photon" for name in imported) <= most


def test_what_was_left_out_can_be_imported_afterwards() -> None:
    with left_out("this"), pytest.raises(ImportError):
        importlib.import_module("this")
    assert importlib.util.find_spec("this") is not None


def test_what_is_there_already_stays() -> None:
    with left_out("pytest"):
        assert importlib.import_module("pytest") is pytest
    assert sys.modules["pytest"] is pytest
