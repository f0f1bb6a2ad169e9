"""The processes of a deployment as ``photon up`` runs them, without its command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, nullcontext

from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Supervisor, Watching
from photon.supervision.zygote import ALL, zygote
from tests.integration.commands import soon
from tests.integration.forked import zygotes

ENDED_S = 240.0


@asynccontextmanager
async def supervised(
    deployment: Deployment, watching: Watching | None = None, *, copies: bool = True
) -> AsyncIterator[Supervisor]:
    """Processes copied from a zygote; a fresh interpreter if ``copies`` is false, for variables that act before the
    first import. At the end each stage ends before the ones that it needs."""
    with ExitStack() as ending:
        with zygotes() if copies else nullcontext():
            made = ending.enter_context(zygote(ALL))
        supervisor = Supervisor(watching=watching, zygote=made)
        try:
            yield supervisor
        finally:
            await supervisor.stop([[each.name for each in stage] for stage in reversed(deployment.stages())])


async def only_registry(supervisor: Supervisor, deployment: Deployment) -> None:
    """A verification needs none of the others, and they take more processor time than it does."""
    others = [each.name for each in deployment.services() if not each.name.startswith("registry")]
    for name in others:
        supervisor.hold(name)
    await soon(lambda: not any(map(supervisor.pid, others)), ENDED_S, "only the registry runs")
