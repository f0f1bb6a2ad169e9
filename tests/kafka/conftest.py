"""One Kafka for the whole run, on free ports, killed at its end.

Without Java or Maven the tests here skip and say so; with CI=true nothing skips.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deploy.hbase import standalone
from tests.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """It may be killed and started again by a test, which leaves it running."""
    lacking = standalone.missing()
    if lacking and not os.environ.get("CI"):
        pytest.skip(f"needs a real Kafka: {lacking}")
    server = Broker(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
        yield server
    finally:
        server.kill()  # nothing of it is wanted
