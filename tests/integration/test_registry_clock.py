"""Three real replica processes, one with a clock that is two days wrong: it says so, and moves no boundary."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.clock_offsets import Agreement, ClockFacts
from photon.idregistry.core.commands import NO_TIME
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.resharding import Action, Ask, Resharding
from photon.idregistry.operate.operator_client import OperatorClient
from tests.integration.registry_processes import Processes, client_of, digests_of

RETENTION_S = 3600
S = 1
WRONG = "r2"
DAYS_2 = 2 * 86_400
SECOND = 10**9
PATIENCE_S = 60.0
# Time for which the wrong replica leads: several rounds of its caretaker, each of which would move the boundary.
LEADS_S = 3.0


class Site:
    """The replicas, the wrong one's clock, and their client."""

    def __init__(self, every: Processes, client: RegistryClient, clock: Path) -> None:
        self.every, self.client, self.clock = every, client, clock
        self._batch = 0
        self._incarnation = 0

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.every.check()
            assert time.monotonic() < deadline, f"{what}: {self.every.output(WRONG)[-3000:]}"
            await asyncio.sleep(0.05)

    async def clock_of(self, name: str) -> ClockFacts | None:
        own = RegistryClient({name: self.every.peers[name]})
        try:
            described = await own.describe(timeout=5)
            return described.clock if described else None
        finally:
            await own.close()

    async def until_clocks(self, **expected: Agreement) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = {name: await self.clock_of(name) for name in expected}
            if {name: facts.agreement for name, facts in found.items() if facts} == expected:
                for facts in found.values():
                    assert facts is not None
                    assert (facts.objection == "") == (facts.agreement is Agreement.AGREES)
                return
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)

    async def boundary(self) -> int:
        status = await self.client.reshard(Ask(Action.STATUS), replica="r1", timeout=5)
        assert isinstance(status, Resharding)
        return status.shards[0].boundary_ns

    async def until_boundary(self, least: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while await self.boundary() < least:
            assert time.monotonic() < deadline, await self.boundary()
            await asyncio.sleep(0.1)

    async def led_by(self, name: str) -> None:
        def transfer() -> None:
            with OperatorClient(self.every.peers) as operator:
                for group in (0, 1):
                    if operator.leader(group) != name:
                        operator.transfer(group, name)

        await asyncio.to_thread(transfer)

    async def leaders(self) -> list[str]:
        def ask() -> list[str]:
            with OperatorClient(self.every.peers) as operator:
                return [operator.leader(group) for group in (0, 1)]

        return await asyncio.to_thread(ask)

    async def open(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (opened := await self.client.open_slot(Slot("s1", "east"), 0, b"nonce")) is None:
            assert time.monotonic() < deadline
        assert opened.incarnation, opened.reason
        self._incarnation = opened.incarnation
        self.client.announce(Slot("s1", "east"), [opened.incarnation])

    async def insert(self, ids: Sequence[int], ago_s: float) -> set[int]:
        """The answers for ids with an event time that long ago."""
        self._batch += 1
        n = len(ids)
        rows = Ids(
            digests_of(list(ids)),
            np.full(n, time.time_ns() - int(ago_s * SECOND), np.int64),
            np.full(n, token_of(self._incarnation, self._batch), np.uint64),
            np.ones(n, np.uint8),
            np.zeros(n, np.uint32),
        )
        deadline = time.monotonic() + PATIENCE_S
        while Answer.UNKNOWN in (found := await self.client.insert(rows, timeout=5)).outcomes:
            assert time.monotonic() < deadline, self.client.problem
        return set(found.outcomes.tolist())


def start(directory: Path, clock: Path) -> Processes:
    every = Processes(directory, shards=1)
    for name in every.peers:
        more = {"clock": str(clock)} if name == WRONG else {}
        every.start(name, retention_s=RETENTION_S, uncertainty_s=S, **more)
    return every


def stop(every: Processes) -> None:
    for name in list(every.running):
        every.kill(name)


async def test_a_replica_whose_clock_is_wrong_moves_no_boundary_and_changes_no_shards(tmp_path: Path) -> None:
    clock = tmp_path / "ahead"
    clock.write_text("0")
    every = start(tmp_path, clock)
    try:
        async with client_of(every) as client:
            await _play(Site(every, client, clock))
    finally:
        stop(every)


async def _play(site: Site) -> None:
    agrees = Agreement.AGREES
    await site.until_clocks(r1=agrees, r2=agrees, r3=agrees)
    await site.open()
    began = time.time_ns()
    await site.until_boundary(NO_TIME + 1)
    assert await site.insert(range(10), ago_s=60) == {Answer.COMMITTED}
    assert await site.insert(range(10, 20), ago_s=-60) == {Answer.TOO_NEW}

    _write(site.clock, DAYS_2)
    await site.until_clocks(r1=agrees, r2=Agreement.APART, r3=agrees)
    await site.until(lambda: "ahead of the median of all replicas" in site.every.output(WRONG), "it does not say so")
    await _the_wrong_one_leads(site)
    assert await site.boundary() <= time.time_ns() - RETENTION_S * SECOND

    _write(site.clock, 0)
    await site.until_clocks(r1=agrees, r2=agrees, r3=agrees)
    # It still leads and moves the boundary on: its smallest step is ten seconds.
    await site.until_boundary(began - int((RETENTION_S + S) * SECOND) + 9 * SECOND)
    assert await site.insert(range(20, 30), ago_s=RETENTION_S + 60) == {Answer.BELOW_BOUNDARY}


async def _the_wrong_one_leads(site: Site) -> None:
    """Again, if a busy machine cost it its leadership."""
    number, deadline = 100, time.monotonic() + PATIENCE_S
    while True:
        await site.led_by(WRONG)
        refused = await site.client.reshard(Ask(Action.APPLY, shards=2), timeout=10)
        until = time.monotonic() + LEADS_S
        while time.monotonic() < until:
            number += 2
            assert await site.insert([number], ago_s=60) == {Answer.COMMITTED}  # else BELOW_BOUNDARY
            assert await site.insert([number + 1], ago_s=-60) == {Answer.TOO_NEW}  # not by the wrong clock
        if await site.leaders() == [WRONG, WRONG]:
            break
        assert time.monotonic() < deadline
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith(f"replica {WRONG} proposes no change of the shards: this clock is")


def _write(clock: Path, seconds: int) -> None:
    """Completely or not at all: the replica reads it at any moment."""
    new = clock.with_suffix(".new")
    new.write_text(str(seconds))
    os.replace(new, clock)


@pytest.mark.parametrize("synchronised", [False, True])
async def test_require_sync_refuses_a_machine_that_is_not_synchronised(tmp_path: Path, synchronised: bool) -> None:
    every = Processes(tmp_path, peers={"r1": Processes(tmp_path).peers["r1"]}, shards=1)
    try:
        every.start("r1", require_sync=1, synchronised=synchronised)
        process = every.running["r1"]
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and "ready" not in every.output("r1"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        if synchronised:
            assert process.poll() is None
            return
        assert process.wait(PATIENCE_S) == 1
        lines = [line for line in every.output("r1").splitlines() if line.startswith("error: ")]
        assert len(lines) == 1
        assert "clock.require_sync is set" in lines[0]
        assert "time daemon" in lines[0]
    finally:
        stop(every)
