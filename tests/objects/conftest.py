"""One S3 server for the whole run; a bucket and a proxy with faults for each test.

Without the server's program (``make test-objects`` builds it, with Go) the tests skip; with CI=true nothing skips.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.objects import server


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The folder of the buckets, and the port."""
    if not server.PROGRAM.exists() and not os.environ.get("CI"):
        pytest.skip(f"needs a real S3 server: {server.PROGRAM} is not there, make test-objects builds it with Go")
    directory = tmp_path_factory.mktemp("s3") / "buckets"
    directory.mkdir()
    with server.running(directory) as port:
        yield directory, port


@pytest.fixture
def site(
    store: tuple[Path, int], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[server.Site]:
    """A bucket; what runs in the test reaches it through the proxy."""
    directory, port = store
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    (directory / name).mkdir()
    faults = server.Faults(seed=1)
    with server.proxy(port, faults) as through:
        for key, value in server.environment(through).items():
            monkeypatch.setenv(key, value)
        yield server.Site(name, port, faults)
