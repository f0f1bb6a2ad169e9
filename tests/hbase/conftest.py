"""One HBase for the whole run, on free ports, stopped at its end.

Without Java or Maven the tests here skip and say so; with CI=true nothing skips.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deploy.hbase import standalone
from deploy.hbase.standalone import CannotRun, Ports, Standalone
from photon.embedded.supervisor import free_ports


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """It may be killed and started again by a test, which leaves it running."""
    lacking = standalone.missing()
    if lacking and not os.environ.get("CI"):
        pytest.skip(f"needs a real HBase: {lacking}")
    server = Standalone(tmp_path_factory.mktemp("hbase"), standalone.fetch(), Ports(*free_ports(5)))
    server.configure()
    try:
        server.start()
        yield server
    finally:
        server.stop()


__all__ = ["CannotRun", "hbase"]
