"""What all unit tests have."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from photon.adapters.testkit import other_process
from tests.unit.adapters import elsewhere


@pytest.fixture(scope="session", autouse=True)
def copied_elsewhere() -> object:
    """The testkit's other process is a copy; in the tests of an adapter's author it is not
    (``test_what_a_users_failing_tests_print``)."""
    with pytest.MonkeyPatch.context() as patch:
        copies = SimpleNamespace(run=elsewhere.run, TimeoutExpired=subprocess.TimeoutExpired)
        patch.setattr(other_process, "subprocess", copies)
        yield
