"""Logs from a topic beside files, and sinks into Kafka and PostgreSQL: CPU of Photon's process for each record.

    python -m bench.components.kafka [--records 200000]

Needs what ``make test-kafka`` needs, and PostgreSQL's server; both are started here, and run on the same cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from photon.adapters.logs.follower import Follower
from photon.config.disk import RealDisk
from photon.config.topic_address import topic_address
from photon.library import Output
from photon.outputs.kafka_topic import KafkaTopic
from photon.outputs.topic_relay import TopicRelay
from photon.sinks.kafka import KafkaTarget
from photon.sinks.postgres import PostgresTarget
from photon.sinks.rolling import RollLimits
from photon.sinks.transactions import COMMIT_BYTES, Target, pour_into
from tests.integration.postgres import Postgres, programs
from tests.kafka.broker import Broker
from tests.unit.outputs.helpers import written_output

PADDING = "x" * 80


def click(number: int) -> bytes:
    return json.dumps({"c": f"c{number}", "q": f"q{number}", "t": "2026-11-26T10:00:01Z", "p": PADDING}).encode()


def output_line(number: int) -> bytes:
    said = {
        "event_id": f"c{number}", "key": f"q{number}", "event_time_ns": number * 1000, "foreign": {"n": number},
        "primary": {"w": PADDING}, "source": {"file": "a.log", "offset": number * 100},
        "primary_source": {"file": "q.log", "offset": number * 100}, "joined_at": "2026-11-26T10:00:02Z",
        "token": "0a" * 16,
    }  # fmt: skip
    return json.dumps(said).encode() + b"\n"


def measured(what: str, records: int, work: Callable[[], object]) -> None:
    """Prints one line."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:34} {records / wall:12,.0f} records/s {cpu / records * 1e6:8.2f} µs of CPU a record")


def follow(directory: Path, records: int) -> None:
    follower = Follower(directory, has_header=False)
    follower.scan()
    seen = 0
    while blocks := follower.poll(4 << 20):
        seen += sum(block.data.count(b"\n") for block in blocks)
    follower.close()
    assert seen == records, (seen, records)


def pour(directory: Path, connect: Callable[[], Target], records: int) -> None:
    def batches(cursor: bytes | None, sleep: object) -> object:
        return Output.of_join(directory).batches(cursor=cursor)

    limits = RollLimits(COMMIT_BYTES, 1.0)
    done = pour_into(connect, batches, limits, wait=lambda s: False, monotonic=time.monotonic, say=print)  # type: ignore[arg-type]
    assert done == records, (done, records)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    records: int = parser.parse_args().records
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "broker").mkdir()
        broker = Broker(directory / "broker")
        try:
            broker.start()
            _logs(broker, directory, records)
            slot = written_output(directory)
            slot.append(1, b"".join(map(output_line, range(records))))
            output = slot.place.output
            into = topic_address(broker.make("joined", 3), "joined")
            target = partial(KafkaTarget, into, "bench", ["joined"], {})
            measured("photon sink kafka", records, lambda: pour(output, target, records))
        finally:
            broker.kill()
        _postgres(output, records)


def _logs(broker: Broker, directory: Path, records: int) -> None:
    topic = topic_address(broker.make("clicks", 3), "clicks")
    for partition in range(3):
        broker.write("clicks", map(click, range(partition, records, 3)), partition)
    relay = TopicRelay(RealDisk(), KafkaTopic(topic, {}), directory / "logs")
    measured("relay of a topic, 3 partitions", records, relay.pass_on)
    relay.close()
    measured("follower, of these files", records, lambda: follow(directory / "logs", records))


def _postgres(output: Path, records: int) -> None:
    found = programs()
    if found is None:
        print("PostgreSQL is not installed: its sink is left out")
        return
    server = Postgres(found)
    try:
        server.start()
        into = partial(PostgresTarget, server.address, "clicks", "bench", ["joined"])
        measured("photon sink postgres", records, lambda: pour(output, into, records))
    finally:
        server.close()


if __name__ == "__main__":
    main()
