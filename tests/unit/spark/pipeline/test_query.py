"""A join in a thread of its own: what a program sees of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from photon.config.errors import PhotonError
from photon.operations import spark_join
from photon.spark.pipeline.query import JoinQuery
from photon.spark.pipeline.run import Outcome, Progress
from photon.spark.session import has_ended

OUTCOME = Outcome(3, {"joined": 7}, 2)


async def follows(stop: asyncio.Event, tell: Callable[[Progress], None]) -> Outcome:
    tell({"batchId": 2})
    await stop.wait()
    return OUTCOME


async def fails(stop: asyncio.Event, tell: Callable[[Progress], None]) -> Outcome:
    raise PhotonError("one line")


def test_it_follows_until_it_is_stopped() -> None:
    query = JoinQuery("photon join east", follows)
    assert query.isActive
    assert query.awaitTermination(0.05) is False
    assert query.outcome is None
    query.stop()
    query.stop()
    assert not query.isActive
    assert query.lastProgress == {"name": "photon join east", "batchId": 2}
    assert (query.exception(), query.outcome, query.awaitTermination(), query.awaitTermination(1)) == (
        None, OUTCOME, None, True,
    )  # fmt: skip


def test_one_that_is_asked_to_stop_by_another_thread_ends_the_wait() -> None:
    query = JoinQuery("join", follows)
    threading.Timer(0.05, query.ask_to_stop).start()
    assert query.awaitTermination(60) is True


def test_an_error_reaches_those_who_wait_and_not_those_who_stop() -> None:
    heard: list[BaseException] = []
    query = JoinQuery("join", fails, heard.append)
    with pytest.raises(PhotonError, match="one line"):
        query.awaitTermination()
    with pytest.raises(PhotonError, match="one line"):
        query.awaitTermination(1)
    query.stop()
    assert [str(query.exception()), *map(str, heard)] == ["one line"] * 2
    assert (query.isActive, query.lastProgress, query.outcome) == (False, None, None)


def test_it_ends_with_the_session_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = [False, True]
    monkeypatch.setattr(spark_join, "has_ended", lambda session: looks.pop(0))
    monkeypatch.setattr(spark_join, "SESSION_S", 0.01)
    session: Any = object()

    async def joins(stop: asyncio.Event, tell: Callable[[Progress], None]) -> Outcome:
        async with spark_join._session_lives(session, stop):
            return await follows(stop, tell)

    with pytest.raises(PhotonError, match="the Spark session has ended, and so has the join"):
        JoinQuery("join", joins).awaitTermination()
    looks[:] = [False] * 1000
    query = JoinQuery("join", joins)
    query.stop()
    assert query.outcome == OUTCOME


def test_a_session_that_was_stopped_or_whose_java_is_gone_has_ended() -> None:
    def java(*, stopped: bool) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(
            sc=lambda: SimpleNamespace(isStopped=lambda: stopped))))  # fmt: skip

    assert [has_ended(java(stopped=stopped)) for stopped in (False, True)] == [False, True]
    gone: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    assert has_ended(gone)
    assert has_ended(cast("Any", object()))  # py4j raises what it likes


def test_a_program_that_ends_does_not_wait_for_it() -> None:
    program = "from photon.spark.pipeline.query import JoinQuery\n"
    program += "from tests.unit.spark.pipeline.test_query import follows\nJoinQuery('join', follows)\n"
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_importing_the_package_is_cheap() -> None:
    program = "import sys, photon.spark\n"
    program += "print(*{name.split('.')[0] for name in sys.modules} & {'pyspark', 'numpy', 'grpc', 'msgspec'})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"\n"
