"""photon sink kafka: sink and broker are killed again and again; each record is committed once."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from photon.cli.errors import DONE, FAILED, USAGE
from photon.config.topic_address import topic_address
from photon.library import Batch
from photon.sinks.kafka import KafkaTarget
from photon.sinks.transactions import Committed, TakenOver, Unreachable
from tests.integration.commands import photon
from tests.integration.killed_sink import line, survive
from tests.kafka.broker import Broker
from tests.unit.outputs.helpers import written_output

PARTITIONS = 3


def test_each_record_once_whatever_is_killed(broker: Broker, tmp_path: Path) -> None:
    def there() -> int:
        return sum(1 for _ in broker.read("joined", PARTITIONS))

    into = ("--into", broker.make("joined", PARTITIONS), "--commit-age", "0.1")
    total = survive(tmp_path, "kafka", *into, server=broker, there=there, kills=6, of_server=[3])
    messages = list(broker.read("joined", PARTITIONS))
    seen = Counter(json.loads(each.value())["foreign"]["n"] for each in messages)
    assert seen == Counter(range(total))
    assert all(each.key().decode() == json.loads(each.value())["event_id"] for each in messages)
    assert messages[0].headers() == [("kind", b"joined")]
    assert len({each.partition() for each in messages}) == PARTITIONS


def batch(first: int, count: int) -> Batch:
    """The cursor is the number of the next one."""
    return Batch("joined", "s", b"".join(map(line, range(first, first + count))), b"%d" % (first + count))


def committed(target: KafkaTarget, cursor: str) -> None:
    target.commit(Committed(target.committed.kinds, cursor, int(cursor)))


def test_a_zombie_is_fenced_and_what_it_had_not_committed_is_never_seen(broker: Broker) -> None:
    into = topic_address(broker.make("fenced"), "into")
    zombie = KafkaTarget(into, "one", ["joined"], {})
    zombie.add(batch(0, 2))
    committed(zombie, "2")
    zombie.add(batch(2, 500))
    zombie._producer.flush(30)
    heir = KafkaTarget(into, "one", ["joined"], {})
    assert heir.committed.cursor == "2"
    with pytest.raises(TakenOver, match="stop one of the two"):
        committed(zombie, "502")
    heir.add(batch(2, 3))
    committed(heir, "5")
    beside = KafkaTarget(into, "two", ["joined"], {})
    assert beside.committed == Committed.beginning(["joined"]), "another name has a cursor of its own"
    for each in (zombie, heir, beside):
        each.close()
    assert [json.loads(each.value())["foreign"]["n"] for each in broker.read("fenced")] == [0, 1, 2, 3, 4]
    assert sum(1 for _ in broker.read("fenced", committed=False)) == 505, "the check sees what is not committed"


def test_refusals_are_one_line(broker: Broker, tmp_path: Path) -> None:
    slot = written_output(tmp_path)
    slot.append(1, line(1))
    slot.append(1, line(2), kind="late")

    def refused(into: str, *options: str | Path) -> tuple[int, str]:
        done = photon("sink", "kafka", slot.place.output, "--into", into, *options)
        assert done.err.count("\n") == (1 if done.code else 0), done.err
        return done.code, done.err

    into = broker.make("refusing", max_message_bytes="2000")
    assert refused(into) == (DONE, "")
    code, said = refused(into, "--kind", "late")
    assert (code, "was begun with kinds joined; this run has late" in said) == (USAGE, True)
    code, said = refused(into.replace("refusing", "nothing"))
    assert (code, "there is no topic nothing; create it" in said) == (USAGE, True)
    broker.make("forgetful-photon-cursors", cleanup_policy="delete")
    code, said = refused(broker.make("forgetful"))
    assert (code, "forgetful-photon-cursors has cleanup.policy=delete: Kafka would remove" in said) == (USAGE, True)
    code, said = refused("kafka://broker/topic")
    assert (code, "must be kafka://HOST:PORT/TOPIC" in said) == (USAGE, True)
    client = tmp_path / "client.properties"
    client.write_text("# ours\nsecurity.protocol=PLAINTEXT\n")
    assert refused(into, "--client", client) == (DONE, "")
    client.write_text("no.such.thing=1\n")
    code, said = refused(into, "--client", client)
    assert (code, "no.such.thing" in said) == (FAILED, True)
    slot.append(1, line(3).replace(b'"k"', b'"%b"' % os.urandom(4000).hex().encode()))
    code, said = refused(into)
    assert (code, "refuses a record for refusing" in said) == (FAILED, True)


def test_no_broker_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.sinks.kafka.REACH_S", 1.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        into = topic_address(f"kafka://127.0.0.1:{closed.getsockname()[1]}/x", "into")
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:\d+: no broker answers within 1 s .*transport failure"):
            KafkaTarget(into, "one", ["joined"], {})
