"""Logs as a source: lines are records, positions survive, and the watermark promises what the user does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from photon.assembly.computing import reads_of
from photon.computing import SECOND_NS, Record, Topology, topic_input
from photon.computing.log_input import LogInjector, LogPlace
from photon.computing.row import taken_of
from photon.computing.site import Site
from photon.computing.wire import ENDED_NS, NEVER_NS, Watermark
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.outputs.log.copier import Copier
from photon.outputs.topic_relay import Ends, Message, OffsetsGone, TopicRelay, TopicUnreachable
from tests.kit.clock import ManualClock
from tests.unit.outputs.test_topic_relay import FakeTopic

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
        place = reads_of(topology.sources["log"], self.directory.parent, self.directory)
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
        f"{logs.directory}: within_ns is not set, so lines of any time may still be written"
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


@pytest.mark.parametrize("n", ["1e999", "-" + "9" * 400, "[" * 1023 + "]" * 1023])
def test_lines_with_any_number_and_depth_are_records(logs: Logs, n: str) -> None:
    logs.write("a.log", 1, end=f'\n{{"user":"u","at":2,"n":{n}}}\n')
    _, found = logs.read(logs.opened())
    taken_of([Record(found, 2, "log")])
    assert logs.told == []


def test_once_a_last_line_without_its_end_counts_if_its_file_is_at_rest(logs: Logs) -> None:
    logs.write("a.log", 1, 2, end="")
    logs.clock.ns = (logs.directory / "a.log").stat().st_mtime_ns + 100 * SECOND_NS
    assert logs.read(logs.opened()) == [1]
    assert logs.read(logs.opened(once=True)) == [1, 2]


@pytest.mark.parametrize(
    ("where", "settings", "why"),
    [
        ("none", {}, "the log log: .*none"),
        ("kafka://k/clicks", {}, "the log log.*must be kafka://HOST:PORT/TOPIC"),
        ("kafka://k:9092/.clicks", {}, "the log log.*must be kafka://HOST:PORT/TOPIC"),
        ("logs", {"kafka_client": "c"}, "the log log: kafka_client requires kafka://HOST:PORT/TOPIC, not logs"),
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


# -- topics
class Topic(FakeTopic):
    """One whose broker may be away, or may not have answered yet."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__({number: [] for number in range(partitions)})
        self.away, self.answers = "", threading.Event()
        self.answers.set()
        self.slow: Callable[[], None] = lambda: None

    def read(self, wait_s: float) -> list[Message]:
        self.slow()
        return super().read(wait_s)

    def write(self, *numbers: int, partition: int = 0) -> None:
        there = self.partitions[partition]
        there += [(len(there) + n, b'{"user":"u","at":%d,"n":%d}' % (each, each)) for n, each in enumerate(numbers)]
        self.end[partition] = len(there)

    def ends(self) -> dict[int, Ends]:
        assert self.answers.wait(60)
        self.slow()
        if self.away:
            raise TopicUnreachable(self.away)
        return super().ends()


class Topics(Logs):
    """Logs that are a topic's."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.topic, self.follows = Topic(), False

    def opened(self, position: bytes | None = None, *, once: bool = False, **settings: Any) -> LogInjector:
        topology = Topology("t")
        form: dict[str, Any] = {"format": "jsonl", "key": "user", "time": {"field": "at", "unit": "s"}}
        topology.log(
            "kafka://k:9092/clicks",
            **{"within_ns": WITHIN_NS, "kafka_client": "client.properties", **form, **settings},
        )
        place = reads_of(topology.sources["log"], self.directory.parent, self.directory)
        assert isinstance(place, LogPlace)
        assert place.kafka_client == self.directory.parent / "client.properties"
        opened: Callable[[], Copier] = partial(TopicRelay, RealDisk(), self.topic, self.directory)
        tell, relay = self.told.append, None if self.follows else opened
        return LogInjector("log", place, position, clock=self.clock, once=once, tell=tell, opened=relay)

    def read(self, injector: LogInjector) -> list[int]:
        """Everything that the topic has now."""
        found: list[int] = []
        for _ in range(3):  # a pass that began before, one that began after it, and its files
            found += super().read(injector)
            if injector._topic is not None and injector._topic._running is not None:
                injector._topic._running.exception()
        return found


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(tmp_path)


def test_messages_are_records_and_a_position_goes_on_behind_them(topics: Topics) -> None:
    topics.topic = Topic(2)
    topics.topic.write(1, 2)
    topics.topic.write(3, partition=1)
    with closing(topics.opened()) as injector:
        assert sorted(topics.read(injector)) == [1, 2, 3]
        position = injector.position()
        topics.topic.write(4)
        assert topics.read(injector) == [4]
    topics.topic.write(5, partition=1)
    with closing(topics.opened(position)) as again:
        assert sorted(topics.read(again)) == [4, 5]


def test_partitions_that_have_the_same_messages_are_all_read(topics: Topics) -> None:
    topics.topic = Topic(3)
    for partition in range(3):
        topics.topic.write(1, partition=partition)
    with closing(topics.opened()) as injector:
        assert topics.read(injector) == [1, 1, 1]
        position = injector.position()
        topics.topic.write(2, partition=1)
        assert topics.read(injector) == [2]
    topics.topic.write(2, partition=2)
    with closing(topics.opened(position, once=True)) as again:
        assert [record.value["n"] for batch in again.read() for record in batch.records] == [2, 2]


def test_once_everything_in_the_topic_is_read(topics: Topics) -> None:
    topics.topic.write(*range(50))
    with closing(topics.opened(once=True)) as injector:
        assert [record.value["n"] for batch in injector.read() for record in batch.records] == [*range(50)]


@pytest.mark.parametrize("once", [True, False])
def test_a_backlog_is_copied_and_read_in_parts(topics: Topics, *, once: bool) -> None:
    topics.topic.slow = partial(topics.clock.passes, topic_input.PASS_S * 0.7)
    topics.topic.write(*range(30))
    with closing(topics.opened(once=once)) as injector:
        found, parts = list[int](), 0
        while len(found) < 30:
            assert injector.mark().exact_ns == NEVER_NS
            found += topics.read(injector)
            parts += 1
        assert (found, parts > 1) == ([*range(30)], not once)
        topics.read(injector)
        assert injector.mark().exact_ns > NEVER_NS


def test_nothing_is_read_while_a_relay_copies(topics: Topics) -> None:
    topics.topic.write(1)
    with closing(topics.opened()) as injector:
        assert topics.read(injector) == [1]
        topics.topic.answers.clear()
        topics.topic.write(2)
        list(injector.read())  # begins a pass that has to wait
        (topics.directory / f"clicks-0-{0:020d}.log").write_bytes(b"a pass may leave this\n")
        assert list(injector.read()) == []
        topics.topic.answers.set()


def test_the_watermark_of_a_topic_is_when_all_of_it_was_copied_less_the_promise(topics: Topics) -> None:
    topics.topic = Topic(2)  # one of its partitions is idle
    topics.topic.write(1)
    with closing(topics.opened()) as injector:
        assert injector.held_by(exact=True) == ["kafka://k:9092/clicks: the topic is not copied yet"]
        topics.read(injector)
        whole_ns = injector.mark().exact_ns + WITHIN_NS
        assert topics.clock.ns - 60 * SECOND_NS < whole_ns <= topics.clock.ns
        assert injector.held_by(exact=True) == []
        topics.topic.away = "topic clicks at k:9092: no answer"
        topics.read(injector)
        before = injector.mark()
        topics.clock.passes(3600.0)
        topics.read(injector)
        assert injector.mark() == before
        assert injector.held_by(exact=True) == ["kafka://k:9092/clicks: topic clicks at k:9092: no answer"]
        topics.topic.away = ""
        topics.topic.write(2)
        assert topics.read(injector) == [2]
        assert injector.mark().exact_ns > before.exact_ns + 3000 * SECOND_NS
        assert topics.told == [
            "the log log: topic clicks at k:9092: no answer; its watermark stops until it can be read",
            "the log log: the topic can be read again",
        ]


def test_a_topic_that_cannot_be_read_holds_it_back_for_as_long_as_the_user_says(topics: Topics) -> None:
    with closing(topics.opened(idle_after_ns=60 * SECOND_NS)) as injector:
        topics.read(injector)
        topics.topic.away = "no answer"
        topics.clock.passes(3600.0)
        topics.read(injector)
        assert injector.mark().exact_ns == topics.clock.ns - 60 * SECOND_NS - WITHIN_NS


def test_once_a_topic_that_cannot_be_read_is_an_error(topics: Topics) -> None:
    topics.topic.away = "no answer"
    with closing(topics.opened(once=True)) as injector, pytest.raises(TopicUnreachable):
        list(injector.read())


def test_files_that_a_killed_process_left_are_durable_before_they_are_read(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut would leave files older than the state, though the topic still has the messages."""
    topics.topic.write(1, 2)
    with closing(TopicRelay(RealDisk(), topics.topic, topics.directory)) as killed:
        next(killed.step())
    durable = list[tuple[str, int]]()
    monkeypatch.setattr(RealDisk, "rewrite", lambda disk, path, offset: durable.append((path.name, offset)))
    topics.topic.away, name = "no answer", f"clicks-0-{0:020d}.log"
    with closing(topics.opened()) as injector:
        assert durable == [(name, 0)]
        assert topics.read(injector) == [1, 2]
        position = injector.position()
    topics.opened(position).close()
    assert durable[1:] == [(name, (topics.directory / name).stat().st_size)]


def test_messages_that_are_gone_end_it_with_one_line(topics: Topics) -> None:
    topics.topic.write(1, 2)
    with closing(topics.opened()) as injector:
        topics.read(injector)
        topics.topic.write(3, 4, 5)
        topics.topic.first[0] = 4
        with pytest.raises(OffsetsGone, match="offsets 2 to 3 are gone"):
            topics.read(injector)


def test_a_replay_reads_what_the_run_in_place_has_copied(topics: Topics) -> None:
    topics.topic.write(1)
    with closing(topics.opened()) as injector:
        topics.follows = True
        with pytest.raises(PhotonError, match="topic clicks is not copied yet; a replay reads"):
            topics.opened()
        topics.read(injector)
        topics.topic.write(2)
        with closing(topics.opened()) as replay:
            assert topics.read(replay) == [1]
            assert replay.mark().exact_ns > NEVER_NS
            assert topics.read(injector) == [2]
            assert topics.read(replay) == [2]


def test_files_of_a_topic_that_are_older_than_the_state_are_refused(topics: Topics) -> None:
    topics.topic.write(1, 2)
    with closing(topics.opened()) as injector:
        topics.read(injector)
        position = injector.position()
    path = topics.directory / f"clicks-0-{0:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(
        PhotonError, match=r"clicks-0-0+\.log: lacks messages of topic clicks that were read; restore"
    ):
        topics.opened(position)
    path.unlink()  # a finished file may be moved away
    topics.opened(position).close()
    (topics.directory / ".clicks.offsets").unlink()
    with pytest.raises(PhotonError, match="lacks messages of topic clicks that were read"):
        topics.opened(position)
