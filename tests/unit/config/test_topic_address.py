"""kafka://…: what counts as a topic, and the settings of its clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.errors import UsageError
from photon.config.loader import ConfigError, convert
from photon.config.topic_address import TopicAddress, client_settings, topic_address, topic_in


def test_addresses() -> None:
    found = topic_address("kafka://k1:9092,k2:9092/clicks.v1", "--into")
    assert found == TopicAddress("k1:9092,k2:9092", "clicks.v1")
    assert topic_in(Path(str(found))) == str(found)
    assert topic_in(Path("logs/kafka:/x")) is None
    for wrong in ("kafka://k1/clicks", "kafka://k1:9092/", "kafka://k1:9092/.clicks", "kafka://k1:9092/a/b"):
        with pytest.raises(UsageError, match="must be kafka://HOST:PORT/TOPIC"):
            topic_address(wrong, "--into")


def test_settings_of_clients(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\n\nsecurity.protocol = SSL\nsasl.password=a=b\n")
    assert client_settings(file) == {"security.protocol": "SSL", "sasl.password": "a=b"}
    for wrong, why in (("x", "must be NAME=VALUE"), ("group.id=x", "Photon sets group.id itself")):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=why):
            client_settings(file)
    with pytest.raises(UsageError, match="cannot be read"):
        client_settings(tmp_path / "none")


def _deployment(**east: str) -> dict[str, object]:
    return {
        "join": {"clicks": {"primary": {"format": "jsonl", "key": "q"}, "foreign": {
            "format": "jsonl", "id": "c", "key": "q", "time": "t"}}},
        "datacentre": {"east": {"join": "clicks", "output": "out", "state": "state", "address": "127.0.0.1:7001",
                                "primary": "queries", **east}},
    }  # fmt: skip


def test_a_side_of_a_deployment() -> None:
    settings = convert(_deployment(foreign="kafka://k1:9092/clicks"), "file")
    east = settings.datacentre["east"]
    assert (east.foreign, east.topic("foreign")) == ("state/upstream/foreign", "kafka://k1:9092/clicks")
    assert settings.relayed("east") == {"foreign": "kafka://k1:9092/clicks"}
    with pytest.raises(ConfigError, match=r"datacentre\.east\.foreign = 'kafka://k1/clicks': must be kafka://"):
        convert(_deployment(foreign="kafka://k1/clicks"), "file")
