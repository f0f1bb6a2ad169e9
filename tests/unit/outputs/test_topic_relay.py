"""A topic's partitions as logs: the copied messages, and one line where messages are gone.

Kills and power cuts: ``tests/simulation/log/test_copier.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.outputs import topic_relay
from photon.outputs.topic_relay import Ends, Message, OffsetsGone, TopicRelay, TopicUnreachable, line_of

FILE_OFFSETS = 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_relay, "FILE_OFFSETS", FILE_OFFSETS)


class FakeTopic:
    """Partitions of (offset, value); offsets may have gaps, as transactions leave them."""

    name, cluster = "clicks", "c1"

    def __init__(self, partitions: Mapping[int, list[tuple[int, bytes | None]]], at_once: int = 3) -> None:
        self.partitions = partitions
        self.first = dict.fromkeys(partitions, 0)
        self.end = {number: (messages[-1][0] + 2 if messages else 0) for number, messages in partitions.items()}
        self.at: dict[int, int] = {}
        self.at_once = at_once

    def ends(self) -> dict[int, Ends]:
        return {number: Ends(self.first[number], self.end[number]) for number in self.partitions}

    def seek(self, positions: Mapping[int, int]) -> None:
        self.at = dict(positions)

    def read(self, wait_s: float) -> list[Message]:
        found = []
        for number, at in self.at.items():
            there = [each for each in self.partitions[number] if each[0] >= at][: self.at_once]
            found += [Message(number, offset, offset + 1, value) for offset, value in there]
            self.at[number] = there[-1][0] + 1 if there else self.end[number]
            if not there:
                found.append(Message(number, self.end[number], self.end[number], None))
        return found

    def close(self) -> None:
        self.at = {}


def relay(directory: Path, topic: FakeTopic, *, accept_lost: bool = False) -> TopicRelay:
    return TopicRelay(RealDisk(), topic, directory, accept_lost=accept_lost)


def passed_on(directory: Path, topic: FakeTopic, *, accept_lost: bool = False) -> TopicRelay:
    """Passed on by a process that ends after it."""
    with closing(relay(directory, topic, accept_lost=accept_lost)) as made:
        made.pass_on()
    return made


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def expected(topic: FakeTopic) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for number, messages in topic.partitions.items():
        for offset, value in messages:
            if value:
                name = f"clicks-{number}-{offset // FILE_OFFSETS * FILE_OFFSETS:020d}.log"
                found[name] = found.get(name, b"") + line_of(value)
    return found


def test_messages_that_are_gone_are_one_line_and_are_gone_behind_when_told(tmp_path: Path) -> None:
    topic = FakeTopic({0: [(number, b"%d" % number) for number in range(25)]})
    topic.end[0] = 4
    topic.partitions = {0: topic.partitions[0][:4]}
    passed_on(tmp_path, topic)
    topic = FakeTopic({0: [(number, b"%d" % number) for number in range(13, 25)]})
    topic.first[0] = 13
    with pytest.raises(OffsetsGone, match=r"partition 0: offsets 4 to 12 are gone .* --accept-lost-offsets$"):
        passed_on(tmp_path, topic)
    passed_on(tmp_path, topic, accept_lost=True)
    assert {name[-7:]: data.split() for name, data in files(tmp_path).items()} == {
        "000.log": [b"0", b"1", b"2", b"3"],
        "013.log": [b"%d" % number for number in range(13, 20)],
        "020.log": [b"%d" % number for number in range(20, 25)],
    }
    passed_on(tmp_path, topic)


def test_a_new_partition_of_which_messages_are_gone_already(tmp_path: Path) -> None:
    topic = FakeTopic({0: [(0, b"a")]})
    passed_on(tmp_path, topic)
    topic = FakeTopic({0: [(0, b"a")], 1: [(7, b"h"), (8, b"i")]})
    topic.first[1] = 7
    with pytest.raises(OffsetsGone, match="partition 1: offsets 0 to 6 are gone"):
        passed_on(tmp_path, topic)
    passed_on(tmp_path, topic, accept_lost=True)
    assert sorted(files(tmp_path).values()) == [b"a\n", b"h\ni\n"]


def test_a_topic_that_was_made_once_more_is_refused(tmp_path: Path) -> None:
    passed_on(tmp_path, FakeTopic({0: [(5, b"a")]}))
    with pytest.raises(OffsetsGone, match="was read up to offset 7 and ends at 2: it was recreated"):
        passed_on(tmp_path, FakeTopic({0: [(0, b"a")]}))
    other = FakeTopic({0: []})
    other.cluster = "c2"
    with pytest.raises(PhotonError, match="belongs to cluster c1, but topic clicks is in c2"):
        relay(tmp_path, other)


def test_what_a_failing_client_had_taken_is_read_again(tmp_path: Path) -> None:
    class Failing(FakeTopic):
        fails = True

        def read(self, wait_s: float) -> list[Message]:
            found = super().read(wait_s)
            if self.fails:
                self.fails = False
                raise TopicUnreachable("away")
            return found

    topic = Failing({0: [(number, b"%d" % number) for number in range(8)]})
    copying = relay(tmp_path, topic)
    with pytest.raises(TopicUnreachable):
        copying.pass_on()
    copying.pass_on()
    copying.close()
    assert files(tmp_path) == expected(topic)


def test_messages_copied_before_a_client_failed_are_durable(tmp_path: Path) -> None:
    class Failing(FakeTopic):
        def read(self, wait_s: float) -> list[Message]:
            if self.at[0] > 2:
                raise TopicUnreachable("away")
            return super().read(wait_s)

    topic = Failing({0: [(number, b"%d" % number) for number in range(8)]})
    with closing(relay(tmp_path, topic)) as copying:
        with pytest.raises(TopicUnreachable):
            copying.pass_on()
        assert list(files(tmp_path).values()) == [b"0\n1\n2\n"]
    assert b'"next":3' in (tmp_path / ".clicks.offsets").read_bytes()


def test_the_beginning_of_the_first_file_is_saved_before_it_exists(tmp_path: Path) -> None:
    """After a kill, the topic may begin later, and its files must go on where they began."""
    topic = FakeTopic({0: [(number, b"%d" % number) for number in range(5)]})
    with closing(relay(tmp_path, topic)) as killed:
        next(killed.step())
    topic.first[0] = 2
    with pytest.raises(OffsetsGone, match="offsets 0 to 1 are gone"):
        passed_on(tmp_path, topic)


def test_a_message_is_one_line() -> None:
    assert line_of(b'{"a":\n1}\r\n') == b'{"a": 1}\n'
