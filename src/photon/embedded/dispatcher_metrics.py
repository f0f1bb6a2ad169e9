"""What a dispatcher process says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from photon.config.clock import SystemClock
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics
from photon.config.settings import Settings
from photon.dispatcher.metrics import details_of, reads

if TYPE_CHECKING:
    from photon.dispatcher.engine import DispatcherEngine
    from photon.embedded.pipeline import DispatcherPlan


class HasEngine(Protocol):
    """Runs one engine after the other."""

    @property
    def engine(self) -> DispatcherEngine:
        """The present one."""
        ...


def dispatcher_metrics(settings: Settings, plan: DispatcherPlan, lives: HasEngine) -> ProcessMetrics:
    """Of whichever engine is the present one when it is asked."""
    clock = SystemClock()
    return ProcessMetrics(
        [
            reads(plan.join, lambda: lives.engine, clock, retry_limit=settings.limits.retry_store),
            free_space({"state": plan.state, "output": plan.output}),
        ],
        lambda: details_of(plan.join, lives.engine, clock),
    )
