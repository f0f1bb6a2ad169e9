"""photon status eventstore and forget, against a store that lost one of its logs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from structlog.testing import capture_logs

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore import unavailable
from photon.eventstore.api import LookUpCode
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.service import start_server
from tests.unit.eventstore.helpers import LineAdapter
from tests.unit.refusals import photon

DEPLOYMENT = """
[join.clicks]
primary = {{ format = "jsonl", key = "id" }}
foreign = {{ format = "jsonl", key = "id", id = "c", time = {{ field = "t", unit = "s" }} }}
[datacentre.east]
join = "clicks"
primary = "logs"
foreign = "foreign"
output = "out"
state = "state"
address = "127.0.0.1:{port}"
"""


class Lost:
    """A store with a.log and b.log, of which b.log is gone; it runs in its own loop."""

    def __init__(self, base: Path) -> None:
        self.base = base
        logs = base / "logs"
        logs.mkdir()
        (logs / "a.log").write_bytes(b"k1,1\n")
        (logs / "b.log").write_bytes(b"k2,2\nk3,3\n")
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        config = EventStoreConfig("clicks", logs, base / "map", cache_bytes=1)
        self.engine = EventStoreEngine(config, LineAdapter({}), SystemClock(), RealDisk())
        self.engine.start()
        self.server = self.run(start_server({"clicks": self.engine}, "127.0.0.1:0"))
        self.until(b"k3", LookUpCode.FOUND)
        (logs / "b.log").unlink()
        self.until(b"k3", LookUpCode.UNAVAILABLE, LookUpCode.GONE)  # the second once it has been gone for a while
        self.config = base / "photon.toml"
        self.config.write_text(DEPLOYMENT.format(port=self.server.port))

    def run(self, what):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(30)

    def until(self, key: bytes, *answers: LookUpCode) -> None:
        deadline = time.monotonic() + 60
        while self.run(self.engine.look_up([key], [0])).answers[0] not in answers:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def photon(self, *arguments: str) -> Result:
        words = ["status", "eventstore"] if arguments[0] == "status" else ["eventstore", arguments[0]]
        return photon(*words, *arguments[1:], "--config", self.config)

    def close(self) -> None:
        self.run(self.server.stop(0))
        self.run(self.engine.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lost]:
    monkeypatch.setattr(unavailable, "GRACE_SECONDS", 0.0)
    lost = Lost(tmp_path)
    yield lost
    lost.close()


def test_status_names_what_is_missing(lost: Lost) -> None:
    deadline = time.monotonic() + 60
    while (shown := lost.photon("status")).exit_code != 3:
        assert time.monotonic() < deadline, shown.output
    assert "1 key waits for 1 log" in shown.output
    [line] = [line for line in shown.output.splitlines() if "its file is gone" in line]
    assert line.split()[0] == "b.log"
    said = json.loads(lost.photon("status", "-o", "json").stdout)
    assert said["progress"]["missing_logs"] == 1
    assert [(each["path"], each["keys"]) for each in said["unavailable"]] == [("b.log", 1)]


def test_forget_shows_first_and_applies_when_told(lost: Lost) -> None:
    deadline = time.monotonic() + 60
    while (shown := lost.photon("forget", "b.log", "--dry-run")).exit_code != 0:  # the next scan sees that it is gone
        assert "b.log: exists" in shown.stderr
        assert time.monotonic() < deadline
    assert "1 log would be given up" in shown.output
    lost.until(b"k3", LookUpCode.UNAVAILABLE, LookUpCode.GONE)
    with capture_logs() as told:  # the store runs in this process: its log is not the command's output
        refused = lost.photon("forget", "a.log", "x.log", "--yes", "-o", "json")
        done = lost.photon("forget", "--all", "--yes", "-o", "json")
    assert [line["method"] for line in told if line["event"] == "audit"] == ["photon.v1.EventStore/Forget"] * 2
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["logs"] == []
    assert "a.log: exists" in refused.stderr
    assert "x.log: no primary log" in refused.stderr
    assert [each["path"] for each in json.loads(done.stdout)["logs"]] == ["b.log"]
    assert json.loads(done.stdout)["applied"]
    lost.until(b"k3", LookUpCode.ABSENT)
    assert "given up" in lost.photon("status").output


def test_usage(lost: Lost) -> None:
    for arguments in ((), ("b.log", "--all"), ("b.log",)):
        assert lost.photon("forget", *arguments).exit_code == 2
    lost.config.write_text(DEPLOYMENT.format(port=2))
    down = lost.photon("status")
    assert down.exit_code == 1
    assert down.stderr.startswith("photon: event store: ")
    assert down.stderr.count("\n") == 1
