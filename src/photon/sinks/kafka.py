"""Writes published records to a Kafka topic, with records and cursor in one transaction.

A message's value is the output record, its key the event id, its header ``kind`` its kind. The cursor goes to
``TOPIC-photon-cursors``, a compacted topic with one partition, under the sink's name. A consumer with
``isolation.level`` set to ``read_committed`` sees each record once.

The transactional id consists of topic and name. So, of two sinks with one name, Kafka fences the older one, and ends
its transaction before it reports the position to the newer one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from photon.config.errors import PhotonError, UsageError
from photon.config.extras import needed
from photon.config.topic_address import TopicAddress
from photon.library import Batch
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.kafka_topic import cleanup_policy
from photon.outputs.records import decode
from photon.sinks.transactions import Committed, TakenOver, Unreachable, committed_of

ANSWER_S = 30.0  # maximum wait for an answer of the cluster; restarting brokers take seconds
REACH_S = 10.0  # maximum wait until a connection begins to answer, so that a wrong address is reported soon
ABORT_S = 5.0
POLL_S = 0.1
TRANSACTION_MS = 60_000  # Kafka aborts a lost sink's open transaction after this time; until then readers wait
MESSAGE_BYTES_MAX = 256 << 20  # the topic's own limit decides
QUEUE_KIB = 64 << 10
# Errors that a retry cannot fix
REFUSALS = (
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_RECORD",
    "POLICY_VIOLATION",
    "INVALID_REPLICATION_FACTOR",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "_AUTHENTICATION",
    "_INVALID_ARG",
)
CURSORS = "-photon-cursors"
# Small segments, as the topic is read completely at each start
CURSOR_TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}


class KafkaTarget:
    """Writes with one producer. Raises like ``Target``, also in its constructor; ExtraMissing."""

    def __init__(self, into: TopicAddress, name: str, kinds: Sequence[str], settings: Mapping[str, str]) -> None:
        """``settings``: librdkafka's settings, in addition to the address."""
        self._kafka = needed("confluent_kafka", "kafka")
        self._admin = needed("confluent_kafka.admin", "kafka")
        self._into, self._name = into, name
        self._cursors = into.topic + CURSORS
        self._where = f"Kafka at {into.brokers}"
        self._base = {"log_level": 0, **settings, "bootstrap.servers": into.brokers}
        self._refused: Any = None  # the first error with which the cluster refused a message
        self._begun = False
        try:
            self._made_ready()
            self._producer: Any = self._kafka.Producer({
                "message.max.bytes": MESSAGE_BYTES_MAX, "queue.buffering.max.kbytes": QUEUE_KIB, "linger.ms": 20,
                "compression.type": "lz4", "partitioner": "murmur2_random", "delivery.report.only.error": True,
                "transaction.timeout.ms": TRANSACTION_MS, **self._base,
                "transactional.id": f"photon-sink-{into.topic}-{name}", "on_delivery": self._delivered,
            })  # fmt: skip
            self._producer.init_transactions(ANSWER_S)
            # Read only now, when pending commits of an earlier sink of this name are completed and no other sink can
            # commit
            self._stored = self._found() or Committed.beginning(kinds)
        except self._kafka.KafkaException as error:
            raise self._failed(error) from None
        except TimeoutError:
            raise Unreachable(f"{self._where}: no answer within {ANSWER_S:.0f} s") from None
        self._stored.check(kinds, f"{self._where}, sink {name} of {into.topic}")

    @property
    def committed(self) -> Committed:
        return self._stored

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._refused is None and error.name() in REFUSALS:
            self._refused = error

    # -- beginning -----------------------------------------------------------------------------------------------
    def _made_ready(self) -> None:
        """Makes sure that the topic and the cursors' topic exist. Raises UsageError, Unreachable, KafkaException."""
        admin = self._admin.AdminClient(self._base)
        try:
            admin.list_topics(timeout=REACH_S)
        except self._kafka.KafkaException as error:
            raise Unreachable(
                f"{self._where}: no broker answers within {REACH_S:.0f} s ({error.args[0].str()}); check the "
                "address, the broker there, and the settings that it requires (TLS, SASL)"
            ) from None
        topics = self._kafka.TopicCollection([self._into.topic])
        try:
            described = admin.describe_topics(topics, request_timeout=ANSWER_S)[self._into.topic].result(ANSWER_S)
        except self._kafka.KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                raise UsageError(
                    f"{self._where}: there is no topic {self._into.topic}; create it, with the number of "
                    "partitions that its readers need"
                ) from None
            raise
        new = self._admin.NewTopic(
            self._cursors, num_partitions=1, replication_factor=len(described.partitions[0].replicas),
            config=CURSOR_TOPIC,
        )  # fmt: skip
        try:
            admin.create_topics([new], request_timeout=ANSWER_S)[self._cursors].result(ANSWER_S)
        except self._kafka.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
        policy = cleanup_policy(admin, self._cursors)
        if policy not in ("compact", ""):
            raise UsageError(
                f"{self._where}: {self._cursors} has cleanup.policy={policy}: Kafka would remove this sink's "
                "position, and everything would be written again; set cleanup.policy=compact"
            )

    def _found(self) -> Committed | None:
        """Reads the last commit under this name. Raises UsageError, KafkaException."""
        place = self._kafka.TopicPartition(self._cursors, 0)
        # Reads beyond other names' open transactions, as one committed under this name may follow them
        end = self._end(place)
        consumer = self._kafka.Consumer({
            "fetch.wait.max.ms": 50, **self._base, "group.id": "photon-sink", "enable.auto.commit": False,
            "enable.partition.eof": True, "isolation.level": "read_committed", "auto.offset.reset": "earliest",
        })  # fmt: skip
        found = None
        try:
            place.offset = self._kafka.OFFSET_BEGINNING
            consumer.assign([place])
            at = 0
            while at < end:
                message = consumer.poll(ANSWER_S)
                if message is None:
                    raise Unreachable(f"{self._where}: {self._cursors} cannot be read to its end")
                at = message.offset()
                if message.error() is None:
                    at += 1
                    if message.key() == self._name.encode():
                        found = message.value()
                elif message.error().name() != "_PARTITION_EOF":
                    raise self._kafka.KafkaException(message.error())
        finally:
            consumer.close()
        return None if found is None else committed_of(found, f"{self._where}, {self._cursors}")

    def _end(self, place: Any) -> int:
        admin = self._admin.AdminClient(self._base)
        level = self._kafka.IsolationLevel.READ_UNCOMMITTED
        asked = {place: self._admin.OffsetSpec.latest()}
        answer = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
        end: int = answer[place].result(ANSWER_S).offset
        return end

    # -- transactions --------------------------------------------------------------------------------------------
    def add(self, batch: Batch) -> int:
        """Implements ``Target``."""
        found, headers = decode(batch.data), [("kind", batch.kind.encode())]
        lines = batch.data.split(b"\n")[:-1]
        try:
            if not self._begun:
                self._producer.begin_transaction()
                self._begun = True
            for event_id, why, line in zip(found.event_id, found.torn, lines, strict=True):
                if why is not None:
                    raise LineUnreadable(
                        f"a line of {batch.slot} is not an output record ({why}); see photon status verifier"
                    )
                self._produce(self._into.topic, line, event_id, headers)
            self._producer.poll(0)
        except self._kafka.KafkaException as error:
            raise self._failed(error) from None
        return len(lines)

    def _produce(self, topic: str, value: bytes, key: bytes | None, headers: Any = None) -> None:
        while True:
            try:
                self._producer.produce(topic, value=value, key=key, headers=headers)
                return
            except BufferError:  # its queue is full
                self._producer.poll(POLL_S)
                if self._refused is not None:
                    raise self._kafka.KafkaException(self._refused) from None

    def commit(self, after: Committed) -> None:
        """Implements ``Target``."""
        try:
            self._produce(self._cursors, msgspec.json.encode(after), self._name.encode())
            self._committed()
        except self._kafka.KafkaException as error:
            raise self._failed(error) from None
        self._begun = False
        self._stored = after

    def _committed(self) -> None:
        """Commits the transaction. Raises KafkaException."""
        try:
            self._producer.commit_transaction(ANSWER_S)
        except self._kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise
            self._producer.commit_transaction(ANSWER_S)

    def _failed(self, error: Any) -> PhotonError:
        """Converts an error. The transaction's outcome is unknown until the sink has reconnected."""
        if error.args[0].name() in ("_FENCED", "PRODUCER_FENCED"):
            return TakenOver(
                f"{self._where}: another sink named {self._name} writes to {self._into.topic}; uncommitted "
                "records of this one are rolled back; stop one of the two, or give it another --name"
            )
        if self._refused is not None:
            return PhotonError(
                f"{self._where}: refuses a record for {self._into.topic} ({self._refused.str()}); the "
                "transaction is rolled back"
            )
        said = f"{self._where}: {error.args[0].str()}"
        return PhotonError(said) if error.args[0].name() in REFUSALS else Unreachable(said)

    def close(self) -> None:
        """Aborts an open transaction, so that readers need not wait for it."""
        if self._begun:
            with contextlib.suppress(self._kafka.KafkaException):
                self._producer.abort_transaction(ABORT_S)
        self._producer = None
