"""Dispatchers of a datacentre and what they say, whether the deployment file names them or not.

Addresses come from the file, from the state that workers of this machine share, and from the workers themselves: each
that answers names those that it shares its state with. So one address that leads to any of them is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, towards
from photon.dispatcher.client import DispatcherClient
from photon.dispatcher.worker_names import living_workers
from photon.embedded.ledger import ledger_file
from photon.embedded.services import tls_of

if TYPE_CHECKING:
    from photon.dispatcher import dispatcher_pb2 as pb

ADDRESSES_MAX = 128
"""That are asked in one datacentre."""


def dispatcher_addresses(settings: Settings, base: Path, datacentre: str) -> list[str]:
    """host:port of those that are known here."""
    pipeline = settings.datacentre[datacentre]
    living = [each.address for each in living_workers(ledger_file(base / pipeline.state))]
    return list(dict.fromkeys([*pipeline.dispatcher_addresses(), *living]))


@dataclass(slots=True)
class Told:
    """What the dispatchers of a datacentre said."""

    replies: dict[str, pb.StatusReply] = field(default_factory=dict)
    """By address; each worker once, whichever addresses lead to it."""
    silent: list[str] = field(default_factory=list)
    """Addresses at which nobody answered."""


async def ask_dispatchers(settings: Settings, base: Path, datacentre: str, timeout: float) -> Told:
    """All that can be found, each asked once. Raises UsageError: its certificates cannot be used."""
    to = towards(tls_of(settings, base, OPERATOR), identity(Role.DISPATCHER, datacentre))

    async def ask(address: str) -> pb.StatusReply | None:
        client = DispatcherClient(address, to)
        try:
            return await client.status(timeout)
        finally:
            await client.close()

    told = Told()
    asked: list[str] = []
    workers: set[str] = set()
    fresh: Sequence[str] = dispatcher_addresses(settings, base, datacentre)
    while fresh:
        asked += fresh
        named: list[str] = []
        for address, reply in zip(fresh, await asyncio.gather(*map(ask, fresh)), strict=True):
            if reply is None:
                told.silent.append(address)
            elif not reply.worker or reply.worker not in workers:
                workers.add(reply.worker)
                told.replies[address] = reply
                named += reply.workers
        fresh = [each for each in dict.fromkeys(named) if each not in asked][: ADDRESSES_MAX - len(asked)]
    return told
