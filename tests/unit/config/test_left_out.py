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
LISTED = "import {module}, sys; print(*(name for name in {unused} if name in sys.modules))"


@pytest.mark.parametrize(
    "module",
    ["photon.local_join.join", "photon.local_join.children", "photon.eventstore.process", "photon.assembly.registry"],
)
def test_a_start_imports_nothing_that_it_does_not_use(module: str) -> None:
    code = LISTED.format(module=module, unused=UNUSED)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == []


def test_what_was_left_out_can_be_imported_afterwards() -> None:
    with left_out("this"), pytest.raises(ImportError):
        importlib.import_module("this")
    assert importlib.util.find_spec("this") is not None


def test_what_is_there_already_stays() -> None:
    with left_out("pytest"):
        assert importlib.import_module("pytest") is pytest
    assert sys.modules["pytest"] is pytest
