"""While a topic's brokers are away photon join waits, and says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from photon.local_join import parts
from photon.outputs.topic_relay import Ends, TopicUnreachable
from tests.unit.outputs.test_topic_relay import FakeTopic, files, relay


def test_brokers_that_are_away_are_one_line_and_one_when_they_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SHOW_S", 0.0)
    said: list[str] = []
    done = asyncio.Event()

    class Away(FakeTopic):
        looks = 0

        def ends(self) -> dict[int, Ends]:
            self.looks += 1
            if self.looks == 8:
                loop.call_soon_threadsafe(done.set)
            if self.looks in (2, 3, 5):
                raise TopicUnreachable(f"topic clicks at k:1: reason {self.looks}")
            return super().ends()

    topic = Away({0: [(0, b"a")]})

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        runner.run(parts.relay([relay(tmp_path, topic)], said.append, done, lambda: None))
    away = "topic clicks at k:1: reason {}; no event is declared unmatched until the topic can be read again"
    back = "topic clicks can be read again"
    assert said == [away.format(2), back, away.format(5), back]
    assert list(files(tmp_path).values()) == [b"a\n"]
