"""What a dispatcher process says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from photon.config.clock import SystemClock
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics
from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.status import details_of, reads
from photon.dispatcher.worker_names import living_workers

if TYPE_CHECKING:
    from photon.dispatcher.engine import DispatcherEngine
    from photon.embedded.pipeline import DispatcherPlan


class HasEngine(Protocol):
    """Runs one engine after the other."""

    @property
    def engine(self) -> DispatcherEngine:
        """The present one."""
        ...


def dispatcher_metrics(
    settings: Settings, plan: DispatcherPlan, lives: HasEngine, own: Callable[[], str]
) -> ProcessMetrics:
    """Of whichever engine is the present one when it is asked. ``own``: its name as a worker, empty: it has none."""
    clock = SystemClock()

    def details() -> dict[str, Any]:
        said = details_of(plan.join, lives.engine, clock)
        if own():  # so that one address that leads to any of them is enough to find them all
            living = living_workers(plan.state / STATE_NAME)
            said["worker"] = own()
            said["workers"] = [{"worker": each.name, "address": each.address} for each in living]
        return said

    return ProcessMetrics(
        [
            reads(plan.join, lambda: lives.engine, clock, retry_limit=settings.limits.retry_store),
            free_space({"state": plan.state, "output": plan.output}),
        ],
        details,
    )
