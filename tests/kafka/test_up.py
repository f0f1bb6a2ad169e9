"""``photon up`` over two topics: broker, relay, dispatcher and event store are killed, every click is joined once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from photon.cli.errors import DONE
from photon.lab.demo.deployment import DemoDeployment, Shape
from photon.supervision.control import Request, ask
from tests.integration.commands import photon, until
from tests.kafka.broker import Broker
from tests.kafka.test_logs import MORE, WAIT_S, Traffic, joined

SHAPE = Shape(("east",), joiners=1, round_trip_s=None, shards=1, replicas={"r1": "east"}, cache="1B")
# The datacentre's own process has the relay.
KILLED = ("datacentre east", "dispatcher east", "eventstore east")


@pytest.mark.timeout(280)
def test_each_click_is_joined_once_whatever_is_killed(broker: Broker, tmp_path: Path) -> None:
    traffic = Traffic(broker, "deployed")
    DemoDeployment(tmp_path, SHAPE)
    file = tmp_path / "photon.toml"
    text = re.sub(r'^primary = ".*"$', f'primary = "{traffic.queries}"', file.read_text(), flags=re.M)
    file.write_text(re.sub(r'^foreign = ".*"$', f'foreign = "{traffic.clicks}"', text, flags=re.M))
    run = tmp_path / ".photon-run"

    def all_joined() -> Counter[str]:
        return joined("--config", file)

    try:
        up = photon("up", file, "--detach", "--timeout", str(WAIT_S), timeout=2 * WAIT_S)
        assert up.code == DONE, up.err
        traffic.write()
        until(lambda: sum(all_joined().values()) == traffic.total, WAIT_S, "it joins")
        for name in KILLED:
            traffic.write(MORE // 2)
            ask(run, Request(do="kill", names=(name,)))
        broker.kill()
        broker.start()
        traffic.write()
        until(lambda: sum(all_joined().values()) == traffic.total, WAIT_S, "it goes on by itself")
        assert all_joined() == Counter(f"c{number}" for number in range(traffic.total))
        ledger = photon("status", "ledger", "--config", file, "-o", "json")
        assert ledger.code == DONE, ledger.err
    finally:
        photon("down", file)
