"""The bank's sum on a real HBase: money moves by transactions, and observers count the transfers, while clients,
observers and a Thrift server are killed."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from deploy.hbase.standalone import Standalone
from photon.tables.collecting import collect
from photon.tables.observing import Worker
from photon.tables.store import on_hbase
from photon.tables.verifying import verify
from tests.hbase import bank
from tests.hbase.thrift_servers import Thrift2
from tests.integration.commands import photon
from tests.integration.registry_processes import Processes

ROUNDS = 20 if os.environ.get("PHOTON_FULL") == "1" else 2
ACCOUNTS = 12
CLIENTS = ("client-0", "client-1")
OBSERVERS = ("observer-0", "observer-1")
THREADS = 3


def test_the_sum_stays_whoever_is_killed(hbase: Standalone, tmp_path: Path) -> None:
    registry = Processes(tmp_path, dict([next(iter(Processes(tmp_path).peers.items()))]))
    registry.start("r1", oracle=True)
    chance = random.Random(28)
    with Thrift2(hbase) as second:
        thrift = [f"127.0.0.1:{hbase.ports.admin}", second.address]
        rows = on_hbase(thrift, "bank")
        rows.create()
        rows.close()
        tables = bank.opened(thrift, registry.peers)

        def start(name: str) -> None:
            given = {
                "thrift": thrift, "replicas": registry.peers, "accounts": ACCOUNTS, "threads": THREADS,
                "seed": chance.randrange(2**30), "observes": name in OBSERVERS,
            }  # fmt: skip
            registry.running[name] = registry.begin(f"{name}.out", json.dumps(given), module="tests.hbase.bank")

        def done(*names: str) -> int:
            return sum(registry.output(name).count("done") for name in names)

        def wait_for(*names: str, more: int) -> None:
            before, deadline = done(*names), time.monotonic() + 120
            while done(*names) < before + more:
                registry.check()
                assert time.monotonic() < deadline, {name: registry.output(name)[-2000:] for name in names}
                time.sleep(0.05)

        try:
            worker = Worker(tables)
            worker.publish()
            bank.fill(tables, ACCOUNTS)
            for name in (*CLIENTS, *OBSERVERS):
                start(name)
            for number in range(ROUNDS):
                for name in CLIENTS:
                    wait_for(name, more=10)
                wait_for(*OBSERVERS, more=10)
                if number % 2:
                    second.kill()
                    time.sleep(chance.random())
                    second.start()
                killed = [chance.choice(CLIENTS), chance.choice(OBSERVERS)]
                for name in killed:
                    registry.kill(name)
                assert sum(bank.balances(tables).values()) == ACCOUNTS * bank.EACH
                for name in killed:
                    start(name)
            for name in (*CLIENTS, *OBSERVERS):
                registry.kill(name)
            found = bank.balances(tables)  # resolves what the killed ones have left
            assert len(found) == ACCOUNTS
            assert sum(found.values()) == ACCOUNTS * bank.EACH
            assert any(balance != bank.EACH for balance in found.values())
            worker.drain()
            assert bank.counted(tables) == bank.moved(tables)
            tables.flush()
            collect(tables.around, tables.resolver, tables.system, 0.0)  # meets all locks that are left
            said = verify(tables.around, [bank.TABLE, bank.MOVED, bank.COUNTED])
            assert (said.problems, said.locks, said.notifications) == ([], 0, 0)
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
