"""Bridges the driver's thread and an event loop: awaits proposals, and turns their outcomes into answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.raft.api import Applied, Group, GroupState, NotLeader, ProposalOutcome, Unknown


def propose(
    group: Group,
    command: bytes,
    *,
    timeout: float,
    done: Callable[[ProposalOutcome], None],
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Like ``Group.propose``, but ``done`` is called on the loop."""

    def on_driver_thread(outcome: ProposalOutcome) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            loop.call_soon_threadsafe(done, outcome)

    group.propose(command, timeout=timeout, done=on_driver_thread)


async def proposed(group: Group, command: bytes, *, timeout: float) -> ProposalOutcome:
    """Proposes a command and waits for its outcome: a little longer than the driver, then Unknown."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ProposalOutcome] = loop.create_future()

    def done(outcome: ProposalOutcome) -> None:
        if not future.done():
            future.set_result(outcome)

    propose(group, command, timeout=timeout, done=done, loop=loop)
    try:
        async with asyncio.timeout(timeout + 0.5):  # wait_for would lose a cancellation that arrives with the outcome
            return await future
    except TimeoutError:
        return Unknown()


async def applied(group: Group, command: bytes, where: str, *, timeout: float) -> Any:
    """Proposes a command; returns the state machine's answer, or a Refusal with the reason."""
    outcome = await proposed(group, command, timeout=timeout)
    return outcome.result if isinstance(outcome, Applied) else not_applied(outcome, where)


def not_applied(outcome: ProposalOutcome, where: str) -> Refusal:
    """Returns the refusal for a proposal that was probably not applied."""
    if isinstance(outcome, NotLeader):
        return Refusal(Status.NOT_LEADER, leader=outcome.leader or "")
    return Refusal(Status.UNKNOWN, f"{where} lost its leader or did not commit in time")


def not_leading(state: GroupState) -> Refusal | None:
    """Returns the refusal of a replica that does not lead the group; ``None`` if it does."""
    return None if state.is_leader else Refusal(Status.NOT_LEADER, leader=state.leader or "")
