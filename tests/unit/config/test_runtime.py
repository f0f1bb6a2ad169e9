"""The runtime of long-running commands."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Iterator

import pytest

from photon.config import runtime
from photon.config.log import configure


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


async def _given_up() -> None:
    """Like a connection that is given up while its name is looked up."""
    loop = asyncio.get_running_loop()
    for error in (socket.gaierror("Name or service not known"), ValueError("a mistake of ours")):
        loop.create_future().set_exception(error)
    gc.collect()
    await asyncio.sleep(0)


def test_what_nobody_waits_for_is_a_line_of_the_log_and_a_name_that_does_not_resolve_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(json=True)
    runtime.run(_given_up(), prompt=False)
    unknown, mistake = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert unknown["error"] == "gaierror: Name or service not known"
    assert "exception" not in unknown
    assert "ValueError: a mistake of ours" in mistake["exception"]
