"""What a join brings while it runs."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from photon.local_join import parts
from photon.outputs.topic_relay import TopicRelay, TopicUnreachable


class Relay:
    def __init__(self, done: asyncio.Event) -> None:
        self.answers = iter((True, False, False, True, False))
        self.done = done
        self.loop = asyncio.get_running_loop()

    def pass_on_whole(self, now_ns: int) -> None:
        answer = next(self.answers, None)
        if answer is None:
            self.loop.call_soon_threadsafe(self.done.set)
        elif not answer:
            raise TopicUnreachable("topic clicks: no answer")


async def test_a_broker_that_is_away_is_told_each_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SHOW_S", 0.001)
    done, said = asyncio.Event(), list[str]()
    await asyncio.wait_for(parts._relay([cast("TopicRelay", Relay(done))], done, said.append), 20)
    assert said == ["topic clicks: no answer; what it has is waited for"] * 2
