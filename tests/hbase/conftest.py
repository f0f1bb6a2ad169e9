"""One HBase for the whole run, on free ports, stopped at its end.

Without Java or Maven the tests here skip and say so; with CI=true nothing skips.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from deploy.hbase import standalone
from deploy.hbase.standalone import Ports, Standalone
from photon.config.clock import SystemClock
from photon.eventstore.hbase.admin import make_table
from photon.eventstore.hbase.connection import ThriftHBase
from photon.supervision.ports import free_ports
from tests.hbase import java_classes
from tests.hbase.maps import TABLE, Maps

# As of a busy machine, on which a master that was killed assigns its regions at the second or third attempt.
START_SECONDS_MAX = 600.0


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """It may be killed and started again by a test, which leaves it running."""
    lacking = standalone.missing()
    if lacking and not os.environ.get("CI"):
        pytest.skip(f"needs a real HBase: {lacking}")
    directory, jars = tmp_path_factory.mktemp("hbase"), standalone.fetch()
    options = java_classes.shared(jars, tmp_path_factory.mktemp("classes"), START_SECONDS_MAX)
    server = Standalone(directory, jars, Ports(*free_ports(5)), START_SECONDS_MAX)
    # Idle connections are hung up on after a second, not after a minute as usual.
    server.configure(hbase_thrift_server_socket_read_timeout="1000")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(java_classes.JAVA_OPTIONS, options)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGKILL)  # nothing of it is wanted


@pytest.fixture(scope="session")
def table(hbase: Standalone) -> str:
    """The table, made as ``photon eventstore init`` makes it."""
    client = ThriftHBase(f"127.0.0.1:{hbase.ports.thrift}", SystemClock())
    try:
        made = make_table(client, f"127.0.0.1:{hbase.ports.admin}", TABLE, ttl_s=86_400)
    finally:
        client.close()
    assert made.made
    assert made.notes == []
    return TABLE


@pytest.fixture
def maps(hbase: Standalone, table: str) -> Iterator[Maps]:
    """Opens maps, and closes them."""
    opened = Maps(hbase.ports.thrift)
    yield opened
    opened.close()
