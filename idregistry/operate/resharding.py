"""The operator's side of a change of the shards: plans, begins and watches it; retries if a shard refuses.

Requests may be repeated: a change has a number, and requests refer to it. An operator who stops watching changes
nothing: the registry continues by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from photon.config.clock import Clock
from photon.config.errors import PhotonError
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.resharding import Action, Ask, Resharding, ReshardOutcome, Stage

WATCH_SECONDS = 0.2  # interval of requests for a change's progress
# Wait before planning again if the plan was refused at once: a shard may just have lost its leader.
AGAIN_SECONDS = 1.0
# A change is decided before its start; then the shards apply the decision, and new ones open.
AFTER_START_SECONDS = 60.0


class ReshardFailed(PhotonError):
    """``str()`` is one line: the failure, and what to do."""


Tell = Callable[[Resharding], None]
Sleep = Callable[[float], Awaitable[None]]


async def asked(registry: RegistryClient, ask: Ask, *, replica: str = "", timeout: float) -> Resharding:
    """Sends a request and returns the registry's answer. Raises ReshardFailed."""
    outcome = await registry.reshard(ask, replica=replica, timeout=timeout)
    if isinstance(outcome, Refusal):
        raise ReshardFailed(_why(outcome, replica))
    return outcome


async def apply(
    registry: RegistryClient,
    count: int,
    *,
    lead_s: float | None,
    tries: int,
    timeout: float,
    limit: float | None,
    clock: Clock,
    sleep: Sleep = asyncio.sleep,
    tell: Tell = lambda found: None,
) -> Resharding:
    """Changes the number of shards and watches the change to its end; calls ``tell`` with each state seen.

    ``timeout`` limits one request, ``limit`` the whole call, in seconds; ``None`` means until AFTER_START_SECONDS
    after the start. Plans again, up to ``tries`` times, if a shard has an event after the start (the next plan starts
    later), or if the registry could not begin its own plan. The answer contains the last change, which is not settled
    if ``limit`` was reached. Raises ReshardFailed.
    """
    until = None if limit is None else clock.monotonic() + limit
    while True:
        tries -= 1
        planned = await asked(registry, Ask(Action.PLAN, count, lead_s=lead_s), timeout=timeout)
        if planned.change is None:
            raise ReshardFailed(
                f"the registry cannot plan the change: {'; '.join(planned.why_not_sooner) or 'no reason given'}"
            )
        tell(planned)
        config = planned.change.config
        ask = Ask(Action.APPLY, count, lead_s=lead_s, config=config)
        begun = await registry.reshard(ask, timeout=timeout)
        if isinstance(begun, Refusal):
            if begun.status is Status.REFUSED and tries > 0:  # something has changed since the plan
                await sleep(AGAIN_SECONDS)
                continue
            raise ReshardFailed(_why(begun, ""))
        tell(begun)
        starts_ns = planned.change.starts_ns if begun.change is None else begun.change.starts_ns
        longest = clock.monotonic() + max((starts_ns - begun.now_ns) / 1e9, 0.0) + AFTER_START_SECONDS
        end = await watch(
            registry, config, until=longest if until is None else until, clock=clock, sleep=sleep, tell=tell
        )
        if tries <= 0 or not refused(end, config):
            return end


async def watch(
    registry: RegistryClient, config: int, *, until: float, clock: Clock, sleep: Sleep = asyncio.sleep, tell: Tell
) -> Resharding:
    """Waits until a change has ended and settled, or until ``until`` (monotonic); returns the last state.

    Raises ReshardFailed if no replica ever answered.
    """
    last: Resharding | None = None
    reason = "no registry replica answers"
    while True:
        remaining = until - clock.monotonic()
        outcome = await registry.reshard(Ask(Action.STATUS), timeout=min(max(remaining, 0.1), 5.0))
        if isinstance(outcome, Resharding):
            last = outcome
            tell(last)
            if ended(last, config):
                return last
        else:
            reason = _why(outcome, "")
        if clock.monotonic() >= until:
            break
        await sleep(WATCH_SECONDS)
    if last is None:
        raise ReshardFailed(f"change {config} of the shards was begun, but its outcome is unknown: {reason}")
    return last


def ended(found: Resharding, config: int) -> bool:
    """True if a change was aborted or has settled, or a later one has begun."""
    change = found.change
    if change is None or change.config < config:
        return False
    return change.config > config or change.stage is Stage.ABORTED or change.settled


def refused(found: Resharding, config: int) -> bool:
    """True if a change ended because a shard has an event after its start: another try may start later."""
    change = found.change
    if change is None or change.config != config or change.stage is not Stage.ABORTED:
        return False
    return any(each.refused == config for each in found.shards)


async def verified(
    registry: RegistryClient, replicas: Sequence[str], *, timeout: float
) -> Mapping[str, ReshardOutcome]:
    """Has each replica verify its own ids; returns the results by replica."""
    asking = (registry.reshard(Ask(Action.VERIFY), replica=name, timeout=timeout) for name in replicas)
    return dict(zip(replicas, await asyncio.gather(*asking), strict=True))


def _why(refusal: Refusal, replica: str) -> str:
    where = f"registry replica {replica}" if replica else "the registry"
    if refusal.status is Status.REFUSED:
        return refusal.reason
    if refusal.status is Status.NOT_LEADER:
        return f"{where}: no replica leads the config group now; try again"
    return f"{where} does not answer: {refusal.reason or 'none answered in time'}"
