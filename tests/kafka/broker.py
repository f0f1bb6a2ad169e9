"""Apache Kafka's own server on this machine, broker and controller in one, below a directory of its own.

Only the process that was started here is signalled.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from deploy.hbase import standalone
from photon.supervision.ports import free_ports
from tests.integration.commands import until

POM = Path(__file__).parents[2] / "deploy/kafka/pom.xml"
START_S = 120.0
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
JAVA = [
    "java", "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",  # a fourth of the start
]  # fmt: skip
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
log.cleaner.dedupe.buffer.size=4194304
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=100
"""
# As kafka-storage format writes it, which is a JVM more.
FORMAT = f"""\
version=1
node.id=1
cluster.id={CLUSTER}
directory.id=b8L4xved__K86IEr26GJ0w
"""
LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.0.ref=err
appender.0.type=Console
appender.0.name=err
appender.0.target=SYSTEM_ERR
appender.0.layout.type=PatternLayout
appender.0.layout.pattern=%d %p %c{1} %m%n
"""


class Broker:
    """One server, which may be killed and started again."""

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        """Fetches the server and formats its directory. ``host``: an address of this machine. Raises CannotRun."""
        self._jars = standalone.fetch(pom=POM, name="Kafka")
        self.directory = directory
        self.port, controller = free_ports(2)
        self.address = f"{host}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.admin: AdminClient
        self._producer: Producer
        self._settings = directory / "server.properties"
        places = {"host": host, "port": self.port, "controller": controller, "data": directory / "data"}
        self._settings.write_text(PROPERTIES.format(**places))
        (directory / "log4j2.properties").write_text(LOGGING)
        (directory / "data").mkdir()
        (directory / "data/meta.properties").write_text(FORMAT)

    def start(self) -> None:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*JAVA, logging, "-cp", f"{self._jars}/*", "kafka.Kafka", self._settings],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
            )  # fmt: skip
        self.admin = AdminClient(self._client())
        self._producer = Producer({**self._client(), "enable.idempotence": True})
        until(self.answers, START_S, f"Kafka answers; see {self.directory / 'log'}")

    def answers(self) -> bool:
        with contextlib.suppress(KafkaException):
            return bool(self.admin.list_topics(timeout=2).brokers)
        return False

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    # -- topics ----------------------------------------------------------------------------------------------------
    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200}

    def make(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Makes a topic; its address. ``config``: with _ in place of the dots."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([new])[topic].result(30)
        return f"kafka://{self.address}/{topic}"

    def write(self, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """One after the other, and waits until all are there."""
        for value in values:
            while True:
                try:
                    self._producer.produce(topic, value=value, partition=partition)
                    break
                except BufferError:  # its queue is full
                    self._producer.poll(0.1)
        assert self._producer.flush(60) == 0

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> Iterator[Any]:
        """All messages that are there now."""
        places = [TopicPartition(topic, each, 0) for each in range(partitions)]
        ends = self._ends(places, committed=committed)
        consumer = Consumer({
            **self._client(), "group.id": "reads", "enable.auto.commit": False, "fetch.wait.max.ms": 20,
            "isolation.level": "read_committed" if committed else "read_uncommitted", "enable.partition.eof": True,
        })  # fmt: skip
        try:
            consumer.assign(places)
            left = {number for number, end in ends.items() if end}
            while left:
                message = consumer.poll(30)
                assert message is not None, "Kafka says nothing"
                if message.error() is None:
                    yield message
                elif message.error().name() != "_PARTITION_EOF":
                    raise KafkaException(message.error())
                elif message.offset() >= ends[message.partition()]:
                    left.discard(message.partition())
        finally:
            consumer.close()

    def _ends(self, places: list[TopicPartition], *, committed: bool) -> dict[int, int]:
        """Partition -> its end. A broker that has just begun, and a topic that was just made, are waited for."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked: dict[TopicPartition, OffsetSpec] = {place: OffsetSpec.latest() for place in places}
        until_s = time.monotonic() + START_S
        while True:
            try:
                answers = self.admin.list_offsets(asked, isolation_level=level)
                return {place.partition: answer.result(30).offset for place, answer in answers.items()}
            except KafkaException:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.1)
