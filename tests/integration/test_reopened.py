"""Ids that an operator gives up, over real processes: dispatched again with their new generation, once each."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np

from photon.config.clock import SystemClock
from photon.config.loader import load
from photon.fleet.ledger import balances, read_ledger
from photon.fleet.numbers import Numbers
from photon.idregistry.api import Answer, Digester
from photon.idregistry.client.grpc_client import GrpcBackend
from photon.idregistry.client.routing import RoutedRegistry
from photon.lab.demo.check import records
from photon.lab.onlooker import Onlooker
from photon.supervision.deployment import Deployment
from tests.integration.commands import soon
from tests.integration.supervised import supervised
from tests.integration.test_skip import T, configuration, joined, write

CLICKS, GIVEN_UP = 200, 30


async def reopen(registry: RoutedRegistry, digester: Digester, ids: list[str], tokens: list[int]) -> int:
    """Reopens, as an operator may, registered and cleared ids; returns their number."""
    numbers = [int(each[1:]) for each in ids]
    answers = await registry.recovery.reopen(
        digester.digests([each.encode() for each in ids]),
        np.array([(T + n) * 10**9 for n in numbers], np.int64),
        np.array(tokens, np.uint64),
        np.zeros(len(ids), np.uint32),
        operator=True,
        timeout=20,
    )
    return int(np.count_nonzero(answers == Answer.REOPENED))


async def test_they_come_again_once_each(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    write(tmp_path, 0, CLICKS)
    settings = load(file, environment={})
    states = [tmp_path / name / "state" for name in ("east", "west")]
    deployment, ending = Deployment(file, settings, tmp_path / "run"), AsyncExitStack()
    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    registry = RoutedRegistry(GrpcBackend(addresses, SystemClock()), SystemClock())
    digester = Digester((tmp_path / "key").read_bytes(), "clicks")
    dispatcher = Onlooker(settings, None, 5.0)
    ending.push_async_callback(dispatcher.close)
    ending.push_async_callback(registry.close)
    async with ending, supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        await soon(lambda: all(read_ledger(state)["read"] == CLICKS for state in states), 60, "all is read")
        await soon(lambda: len(joined(tmp_path)) == CLICKS, 60, "all is joined")
        await soon(lambda: not any(read_ledger(state)["pending"] for state in states), 60, "all is counted")
        before = [read_ledger(state) for state in states]
        outputs = [tmp_path / name / "output" / "joined" for name in ("east", "west")]
        tokens = {r["event_id"]: int(r["token"], 16) for output in outputs for r in records(output)}
        some = sorted(tokens)[:GIVEN_UP]
        assert await reopen(registry, digester, some, [tokens[each] for each in some]) == GIVEN_UP
        await soon(lambda: len(joined(tmp_path)) == CLICKS + GIVEN_UP, 60, "they are joined again")
        await soon(lambda: sum(read_ledger(s)["reread"] for s in states) >= GIVEN_UP, 60, "and counted as reread")

        # One whose line is in no log any more: it waits, and is reported.
        (tmp_path / "west" / "clicks" / "c.log").rename(tmp_path / "away")
        (tmp_path / "east" / "clicks" / "c.log").unlink()
        lost = sorted(tokens)[-1]
        assert await reopen(registry, digester, [lost], [tokens[lost]]) == 1
        await _missing(dispatcher, 1)
        (tmp_path / "away").rename(tmp_path / "west" / "clicks" / "c.log")  # from an archive: it is found by itself
        await soon(lambda: len(joined(tmp_path)) == CLICKS + GIVEN_UP + 1, 60, "the last one is joined again")
        await _missing(dispatcher, 0)
        ledgers = [read_ledger(state) for state in states]
    seen = Counter(joined(tmp_path))
    assert {each for each, count in seen.items() if count == 2} == {*some, lost}
    assert set(seen.values()) == {1, 2}
    assert all(map(balances, ledgers))
    apart = ("reread", "wasted", "retimed")
    assert [{k: v for k, v in each.items() if k not in apart} for each in ledgers] == [
        {k: v for k, v in each.items() if k not in apart} for each in before
    ]


async def _missing(dispatcher: Onlooker, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            said = await dispatcher.dispatchers("west")
            if said and Numbers(said).max("photon_dispatcher_reopened_missing_ids") == count:
                return
            await asyncio.sleep(0.1)
