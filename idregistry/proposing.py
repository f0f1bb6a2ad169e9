"""From the driver's thread to an event loop: a proposal as an awaitable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from photon.idregistry.raft.api import Group, ProposalOutcome, Unknown


def propose(
    group: Group,
    command: bytes,
    *,
    timeout: float,
    done: Callable[[ProposalOutcome], None],
    loop: asyncio.AbstractEventLoop,
) -> None:
    """As ``Group.propose``, but ``done`` is called on the loop."""

    def on_driver_thread(outcome: ProposalOutcome) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done, outcome)

    group.propose(command, timeout=timeout, done=on_driver_thread)


async def proposed(group: Group, command: bytes, *, timeout: float) -> ProposalOutcome:
    """Waits for the outcome, a little longer than the driver does; then it is Unknown."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ProposalOutcome] = loop.create_future()

    def done(outcome: ProposalOutcome) -> None:
        if not future.done():
            future.set_result(outcome)

    propose(group, command, timeout=timeout, done=done, loop=loop)
    try:
        async with asyncio.timeout(timeout + 0.5):
            return await future
    except TimeoutError:
        return Unknown()
