"""Logs as a source: lines are records, positions survive, and the watermark promises what the user does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from photon.assembly.computing import reads_of
from photon.computing import SECOND_NS, Record, Topology
from photon.computing.log_input import LogInjector, LogPlace
from photon.computing.site import Site
from photon.computing.wire import ENDED_NS, NEVER_NS, Watermark
from photon.config.errors import PhotonError
from tests.kit.clock import ManualClock

NOW_NS = 1_000_000 * SECOND_NS
WITHIN_NS = 10 * SECOND_NS


class Logs:
    def __init__(self, directory: Path) -> None:
        self.directory, self.clock, self.told = directory / "logs", ManualClock(NOW_NS), list[str]()
        self.directory.mkdir()

    def write(self, name: str, *numbers: int, end: str = "\n") -> None:
        with open(self.directory / name, "a") as file:
            file.write(
                "".join(f'{{"user":"u","at":{number},"n":{number}}}\n' for number in numbers).rstrip("\n") + end
            )

    def opened(self, position: bytes | None = None, *, once: bool = False, **settings: Any) -> LogInjector:
        topology = Topology("t")
        settings = {"within_ns": WITHIN_NS, "key": "user", **settings}
        topology.log("logs", format="jsonl", time={"field": "at", "unit": "s"}, **settings)
        place = reads_of(topology.sources["log"], self.directory.parent)
        assert isinstance(place, LogPlace)
        return LogInjector("log", place, position, clock=self.clock, once=once, tell=self.told.append)

    def read(self, injector: LogInjector) -> list[int]:
        self.clock.passes(10.0)
        return [record.value["n"] for batch in injector.read() for record in batch.records]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_lines_are_records_and_a_position_goes_on_behind_them(logs: Logs) -> None:
    logs.write("a.log", 1, 2)
    logs.write("b.log", 3)
    injector = logs.opened()
    logs.clock.passes(10.0)
    (batch,) = injector.read()
    assert batch.records[0] == Record({"user": "u", "at": 1, "n": 1}, SECOND_NS, "log")
    assert (batch.begin, len(batch.records)) == (None, 3)
    logs.write("a.log", 4)
    (logs.directory / "a.log").rename(logs.directory / "a.log.1")
    again = logs.opened(batch.end)
    assert logs.read(again) == [4]
    logs.write("b.log", 5, end="")
    assert logs.read(again) == []
    logs.write("b.log", end="\n")
    assert logs.read(again) == [5]


def test_the_watermark_is_that_of_logs_read_to_their_ends_less_the_promise(logs: Logs) -> None:
    logs.write("a.log", 1)
    injector = logs.opened()
    assert injector.mark() == Watermark()
    logs.read(injector)
    assert injector.mark() == Watermark(logs.clock.ns - WITHIN_NS, logs.clock.ns - WITHIN_NS)
    assert injector.held_by(exact=True) == []
    logs.clock.passes(10.0)
    batches = list(injector.read())
    assert [(batch.records, batch.watermark) for batch in batches] == [([], injector.mark())]
    assert injector.complete().watermark == Watermark(ENDED_NS, ENDED_NS)


def test_what_holds_the_watermark_back_is_named(logs: Logs) -> None:
    logs.write("a.log", 1)
    injector = logs.opened(within_ns=None)
    logs.read(injector)
    assert injector.mark().exact_ns == NEVER_NS
    assert injector.held_by(exact=True) == [
        f"{logs.directory}: within_ns is not given, so more lines of any time may be written"
    ]


def test_logs_that_cannot_be_read_hold_it_back_for_as_long_as_the_user_says(logs: Logs) -> None:
    logs.write("a.log", 1)
    injectors = [logs.opened(), logs.opened(idle_after_ns=60 * SECOND_NS)]
    for injector in injectors:
        logs.read(injector)
    before = [injector.mark().exact_ns for injector in injectors]
    (logs.directory / "a.log").rename(logs.directory.parent / "a.log")
    logs.directory.rmdir()
    for passed, moves in ((10, False), (120, True)):
        logs.clock.passes(passed)
        for injector in injectors:
            list(injector.read())
        assert injectors[0].mark().exact_ns == before[0]
        assert (injectors[1].mark().exact_ns > before[1]) is moves
    assert "the log directory" in injectors[0].held_by(exact=True)[0]


def test_lines_that_cannot_be_read_are_counted_and_told(logs: Logs) -> None:
    logs.write("a.log", 1)
    logs.write("a.log", end='no JSON\n{"user":"u"}\n')
    logs.write("a.log", 2)
    injector = logs.opened()
    assert logs.read(injector) == [1, 2]
    assert len(logs.told) == 1
    assert f"2 lines of {logs.directory / 'a.log'} cannot be read and are left out" in logs.told[0]
    assert "no JSON" in logs.told[0]


def test_once_a_last_line_without_its_end_counts_if_its_file_is_at_rest(logs: Logs) -> None:
    logs.write("a.log", 1, 2, end="")
    logs.clock.ns = (logs.directory / "a.log").stat().st_mtime_ns + 100 * SECOND_NS
    assert logs.read(logs.opened()) == [1]
    assert logs.read(logs.opened(once=True)) == [1, 2]


@pytest.mark.parametrize(
    ("where", "settings", "why"),
    [
        ("none", {}, "the log log: .*none"),
        ("kafka://k:9092/clicks", {}, "a topic is read from the files that its relay makes.*STATE/upstream/SIDE"),
        ("ftp://x/y", {}, "URLs of this kind cannot be read"),
        ("logs", {"colour": 1}, "the log log.*colour"),
        ("logs", {"format": "yaml"}, "the log log.*yaml"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(logs: Logs, where: str, settings: Any, why: str) -> None:
    topology = Topology("t")
    topology.log(where, **{"format": "jsonl", "key": "user", "time": {"field": "at", "unit": "s"}, **settings})
    site = Site(topology, logs.directory.parent, logs.directory.parent / "state", reads_of, clock=logs.clock)
    with pytest.raises(PhotonError, match=why) as refused:
        site.reading(topology.sources["log"], None, once=False, tell=logs.told.append, known=None)
    assert "\n" not in str(refused.value)


def test_a_position_elsewhere_is_refused(logs: Logs) -> None:
    with pytest.raises(PhotonError, match="not a position in logs"):
        logs.opened(b'{"photon_input":1,"sources":{}}')
