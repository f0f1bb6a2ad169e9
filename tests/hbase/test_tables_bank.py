"""The bank's sum on a real HBase: money moves by transactions while clients and a Thrift server are killed."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from deploy.hbase.standalone import Standalone
from photon.tables.store.hbase import HBaseRows
from photon.tables.verifying import verify
from tests.hbase import bank
from tests.hbase.thrift_servers import Thrift2
from tests.integration.commands import photon
from tests.integration.registry_processes import Processes

ROUNDS = 20 if os.environ.get("PHOTON_FULL") == "1" else 2
ACCOUNTS = 12
CLIENTS = 2
THREADS = 3


def test_the_sum_stays_whoever_is_killed(hbase: Standalone, tmp_path: Path) -> None:
    registry = Processes(tmp_path, dict([next(iter(Processes(tmp_path).peers.items()))]))
    registry.start("r1", oracle=True)
    chance = random.Random(28)
    with Thrift2(hbase) as second:
        thrift = [f"127.0.0.1:{hbase.ports.admin}", second.address]
        rows = HBaseRows(thrift, "bank")
        rows.create()
        rows.close()
        tables = bank.opened(thrift, registry.peers)

        def start(name: str) -> None:
            given = {
                "thrift": thrift, "replicas": registry.peers, "accounts": ACCOUNTS, "threads": THREADS,
                "seed": chance.randrange(2**30),
            }  # fmt: skip
            registry.running[name] = registry.begin(f"{name}.out", json.dumps(given), module="tests.hbase.bank")

        def transfers(name: str) -> int:
            return registry.output(name).count("transfer")

        try:
            bank.fill(tables, ACCOUNTS)
            names = [f"client-{number}" for number in range(CLIENTS)]
            for name in names:
                start(name)
            for number in range(ROUNDS):
                before = {name: transfers(name) for name in names}
                deadline = time.monotonic() + 120
                while any(transfers(name) < before[name] + 10 for name in names):
                    registry.check()
                    assert time.monotonic() < deadline, registry.output(names[0])[-2000:]
                    time.sleep(0.05)
                if number % 2:
                    second.kill()
                    time.sleep(chance.random())
                    second.start()
                killed = chance.choice(names)
                registry.kill(killed)
                assert sum(bank.balances(tables).values()) == ACCOUNTS * bank.EACH
                start(killed)
            for name in names:
                registry.kill(name)
            found = bank.balances(tables)  # resolves what the killed ones have left
            assert len(found) == ACCOUNTS
            assert sum(found.values()) == ACCOUNTS * bank.EACH
            assert any(balance != bank.EACH for balance in found.values())
            said = verify(tables.around, [bank.TABLE])
            assert said.problems == []
            assert said.locks == 0
            the_commands_say_the_same(tmp_path, thrift, registry.peers["r1"])
        finally:
            for name in list(registry.running):
                registry.kill(name)
            tables.close()


def the_commands_say_the_same(directory: Path, thrift: list[str], replica: str) -> None:
    file = directory / "photon.toml"
    file.write_text(
        f'[tables]\nthrift = {json.dumps(thrift)}\ntable = "bank"\n'
        f'[registry.replicas.r1]\naddress = "{replica}"\ndirectory = "r1"\n'
    )
    assert photon("table", "init", "--config", str(file)).code == 2
    said = photon("table", "init", "--not-durable", "--config", str(file), "-o", "json")
    assert json.loads(said.out) == {"store": "hbase", "made": False, "durable": False}
    said = photon("table", "scan", bank.TABLE, "--config", str(file), "-o", "json")
    rows = json.loads(said.out)["rows"]
    assert sum(row["values"]["balance"] for row in rows) == ACCOUNTS * bank.EACH
    said = photon("status", "oracle", "--config", str(file), "-o", "json")
    assert said.code == 0, said.err
    [row] = json.loads(said.out)["replicas"]
    assert row["leads"]
    assert row["timestamps"] > 0
