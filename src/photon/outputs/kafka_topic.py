"""Reads a Kafka topic for ``topic_relay``, by partition and with our own offsets, without a consumer group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError
from pathlib import Path
from typing import Any

from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.extras import needed
from photon.config.structured import get_logger
from photon.config.topic_address import TopicAddress, client_settings
from photon.outputs.topic_relay import Ends, Message, TopicRelay, TopicUnreachable

ANSWER_S = 5.0
MESSAGES = 10_000
FETCH_KIB = 16 << 10  # limit of fetched messages not read yet

log = get_logger(__name__)


def cleanup_policy(admin: Any, topic: str) -> str:
    """Returns the topic's ``cleanup.policy``; empty, after a warning, if its configuration may not be read.

    Raises KafkaException, TimeoutError, ExtraMissing.
    """
    kafka, api = needed("confluent_kafka", "kafka"), needed("confluent_kafka.admin", "kafka")
    asked = api.ConfigResource(api.ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([asked], request_timeout=ANSWER_S)[asked].result(ANSWER_S)
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        why = "its configuration may not be read (DescribeConfigs)"
        log.warning("could not check whether Kafka compacts a topic", topic=topic, why=why)
        return ""
    policy: str = found["cleanup.policy"].value
    return policy


class KafkaTopic:
    """Implements ``Topic``. The constructor raises the same errors as its methods, and ExtraMissing."""

    def __init__(self, address: TopicAddress, settings: Mapping[str, str]) -> None:
        """``settings``: further settings of librdkafka."""
        self._kafka = needed("confluent_kafka", "kafka")
        self._admin_api = needed("confluent_kafka.admin", "kafka")
        self.name = address.topic
        self._where = f"topic {address.topic} at {address.brokers}"
        base = {"log_level": 0, **settings, "bootstrap.servers": address.brokers}
        try:
            self._admin: Any = self._admin_api.AdminClient(base)
            self._consumer: Any = self._kafka.Consumer({
                "fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": FETCH_KIB, "fetch.wait.max.ms": 50,
                **base, "group.id": "photon-relay", "enable.auto.commit": False, "enable.auto.offset.store": False,
                "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "error",
            })  # fmt: skip
            self.cluster: str = self._consumer.list_topics(timeout=ANSWER_S).cluster_id or ""
        except (self._kafka.KafkaException, TimeoutError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> TopicUnreachable:
        kafka = error.args[0].str() if isinstance(error, self._kafka.KafkaException) else "no answer"
        return TopicUnreachable(f"{self._where}: {kafka}")

    def refuse_compacted(self) -> None:
        """Raises UsageError if the topic is compacted, as messages would vanish unnoticed; TopicUnreachable."""
        try:
            policy = cleanup_policy(self._admin, self.name)
        except (self._kafka.KafkaException, TimeoutError) as error:
            raise self._unreachable(error) from None
        if "compact" in policy.split(","):
            raise UsageError(
                f"{self._where}: is compacted (cleanup.policy={policy}): events may vanish unnoticed before they "
                "are read; read a topic with cleanup.policy=delete"
            )

    def ends(self) -> dict[int, Ends]:
        """See ``Topic``."""
        levels, spec = self._kafka.IsolationLevel, self._admin_api.OffsetSpec
        try:
            topic = self._admin.list_topics(self.name, ANSWER_S).topics[self.name]
            if topic.error is not None:
                raise self._kafka.KafkaException(topic.error)
            places = [self._kafka.TopicPartition(self.name, each) for each in topic.partitions]
            # Oldest first: so that messages deleted meanwhile are noticed the next time
            first = self._asked(places, spec.earliest(), levels.READ_UNCOMMITTED)
            end = self._asked(places, spec.latest(), levels.READ_COMMITTED)
        except (self._kafka.KafkaException, TimeoutError) as error:
            raise self._unreachable(error) from None
        return {place.partition: Ends(first[place.partition], end[place.partition]) for place in places}

    def _asked(self, places: Sequence[Any], what: Any, level: Any) -> dict[int, int]:
        asked = dict.fromkeys(places, what)
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
        found = {place.partition: answer.result(ANSWER_S).offset for place, answer in answers.items()}
        if min(found.values(), default=0) < 0:  # its broker has just started and does not know the offset yet
            raise TimeoutError
        return found

    def seek(self, positions: Mapping[int, int]) -> None:
        """See ``Topic``."""
        try:
            self._consumer.assign([
                self._kafka.TopicPartition(self.name, partition, offset) for partition, offset in positions.items()
            ])  # fmt: skip
        except self._kafka.KafkaException as error:
            raise self._unreachable(error) from None

    def read(self, wait_s: float) -> list[Message]:
        """See ``Topic``."""
        try:
            messages = self._consumer.consume(MESSAGES, wait_s)
        except self._kafka.KafkaException as error:
            raise self._unreachable(error) from None
        found = []
        for each in messages:
            failed = each.error()
            if failed is None:
                found.append(Message(each.partition(), each.offset(), each.offset() + 1, each.value()))
            elif failed.name() == "_PARTITION_EOF":
                found.append(Message(each.partition(), each.offset(), each.offset(), None))
            elif failed.name() != "_AUTO_OFFSET_RESET":  # out of range; ``ends`` reports the reason
                raise TopicUnreachable(f"{self._where}: {failed.str()}")
        return found

    def close(self) -> None:
        self._consumer.close()


def open_relay(
    disk: Disk, address: TopicAddress, client: Path | None, directory: Path, *, accept_lost: bool
) -> TopicRelay:
    """``client``: a file with client properties. Raises UsageError, TopicUnreachable, OffsetsGone, ExtraMissing, and
    the errors of Copier.
    """
    topic = KafkaTopic(address, client_settings(client))
    try:
        topic.refuse_compacted()
        return TopicRelay(disk, topic, directory, accept_lost=accept_lost)
    except BaseException:
        topic.close()
        raise
