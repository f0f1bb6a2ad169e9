"""Waits until a process is told to end."""

from __future__ import annotations

import asyncio

import pytest

from photon.config.stopping import Stopped, first, unless_stopped, until


async def test_until_lasts_as_long_as_it_says_or_until_stop() -> None:
    stop = asyncio.Event()
    assert await until(stop, 0.01) is False
    assert await until(stop, 0.0) is False
    waiting = asyncio.create_task(until(stop, 3600.0))
    await asyncio.sleep(0)
    stop.set()
    assert await waiting is True
    assert await until(stop, 0.0) is True


async def test_first_waits_for_one_of_several_and_cancels_none() -> None:
    stop, done = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(done.wait()), asyncio.create_task(asyncio.Event().wait())]
    await first(stop, tasks, timeout=0.01)
    assert not any(task.done() for task in tasks)
    done.set()
    await first(stop, tasks)
    assert [task.done() for task in tasks] == [True, False]
    stop.set()
    await first(stop, tasks[1:])
    assert not tasks[1].cancelling()
    tasks[1].cancel()


async def test_work_ends_with_its_result_or_when_it_is_stopped() -> None:
    stop = asyncio.Event()
    assert await unless_stopped(stop, asyncio.sleep(0, "result")) == "result"
    stop.set()
    with pytest.raises(Stopped):
        await unless_stopped(stop, asyncio.sleep(3600))
