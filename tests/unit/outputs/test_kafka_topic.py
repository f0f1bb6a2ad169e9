"""Kafka's client as the relay uses it, against the broker that the client's library simulates within this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer
from structlog.testing import capture_logs

from photon.config.disk import RealDisk
from photon.config.topic_address import TopicAddress
from photon.outputs.kafka_topic import KafkaTopic
from photon.outputs.topic_relay import Ends, TopicRelay, TopicUnreachable


@pytest.fixture
def brokers() -> Iterator[str]:
    playing = Producer({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = playing.list_topics(timeout=60).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del playing  # the simulation lasts as long as it exists


def write(brokers: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": brokers, "log_level": 0})
    for number in range(first, end):
        producer.produce("clicks", value=b"%d" % number, partition=number % 2)
    assert producer.flush(10) == 0


def test_partitions_are_read_to_their_ends_and_read_on(brokers: str, tmp_path: Path) -> None:
    write(brokers, 0, 10)
    for end in (10, 16):
        topic = KafkaTopic(TopicAddress(brokers, "clicks"), {})
        write(brokers, 10, end)
        assert [topic.ends()[number] for number in range(2)] == [Ends(0, end // 2)] * 2
        relay = TopicRelay(RealDisk(), topic, tmp_path)
        relay.pass_on()
        relay.close()
    for number in range(2):
        lines = (tmp_path / f"clicks-{number}-{0:020d}.log").read_bytes().split()
        assert lines == [b"%d" % each for each in range(number, 16, 2)]


def test_offsets_are_asked_by_a_client_that_was_told_who_leads_now(brokers: str) -> None:
    """A restarted broker leads in a new epoch, and repeatedly refuses clients that name the old one."""

    class Client:
        def __init__(self, real: Any) -> None:
            self._real, self._told = real, False

        def list_topics(self, *asked: Any) -> Any:
            self._told = True
            return self._real.list_topics(*asked)

        def list_offsets(self, *asked: Any, **settings: Any) -> Any:
            if not self._told:
                raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
            return self._real.list_offsets(*asked, **settings)

    write(brokers, 0, 4)
    topic = KafkaTopic(TopicAddress(brokers, "clicks"), {})
    for _ in range(2):
        topic._admin = Client(topic._admin)
        assert topic.ends()[0] == Ends(0, 2)
    topic.close()


def test_an_end_that_a_broker_does_not_know_yet_is_no_end(brokers: str) -> None:
    """A broker that is just starting answers this for a moment."""

    class Client:
        def __init__(self, real: Any) -> None:
            self.list_topics = real.list_topics

        def list_offsets(self, asked: Any, **_: Any) -> Any:
            unknown = SimpleNamespace(offset=OFFSET_INVALID)
            return {place: SimpleNamespace(result=lambda _: unknown) for place in asked}

    write(brokers, 0, 4)
    topic = KafkaTopic(TopicAddress(brokers, "clicks"), {})
    topic._admin = Client(topic._admin)
    with pytest.raises(TopicUnreachable, match=r"^topic clicks at .*: no answer$"):
        topic.ends()
    topic.close()


def test_a_policy_that_may_not_be_read_is_said(brokers: str) -> None:
    class Client:
        def __init__(self, problem: int) -> None:
            self._problem = problem

        def describe_configs(self, asked: list[Any], **_: Any) -> Any:
            def result(_: float) -> Any:
                raise KafkaException(KafkaError(self._problem))

            return {asked[0]: SimpleNamespace(result=result)}

    topic = KafkaTopic(TopicAddress(brokers, "clicks"), {})
    topic._admin = Client(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with capture_logs() as lines:
        topic.refuse_compacted()
    assert [line["why"] for line in lines] == ["its configuration may not be read (DescribeConfigs)"]
    topic._admin = Client(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(TopicUnreachable):
        topic.refuse_compacted()
    topic.close()


def test_no_broker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.outputs.kafka_topic.ANSWER_S", 0.2)
    with pytest.raises(TopicUnreachable, match=r"^topic clicks at 127\.0\.0\.1:1: "):
        KafkaTopic(TopicAddress("127.0.0.1:1", "clicks"), {})
