"""``photon.compute``: runs computations over published records in another program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from photon.assembly.computing import reads_of
from photon.computing import rescaling
from photon.computing.journal import Status
from photon.computing.replay import current
from photon.computing.site import Site
from photon.computing.topology import Topology
from photon.config.disk import RealDisk


@dataclass(frozen=True, slots=True)
class Computed:
    """The results of a run, summed over all computations."""

    records: int
    produced: int
    late: int
    aside: int
    """Number of records and timers set aside because a computation failed on them."""


def run(
    topology: Topology,
    *,
    state: str | Path,
    base: str | Path = ".",
    once: bool = False,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = lambda line: None,
    accept_lost_offsets: bool = False,
) -> Computed:
    """Runs the topology in this thread until ``stop`` is set; with ``once``, until all records published so far are
    computed::

        compute.run(topology, state="state", once=True)

    ``state``: directory of the persistent state; one program at a time. ``base``: directory for relative paths in the
    topology. ``tell``: receives one line for each failure of a computation.
    ``accept_lost_offsets``: continue after messages that topics lost before they were read. Raises UsageError, and
    other PhotonErrors of one line; uncommitted work is repeated next time.
    """
    site = Site(topology, Path(base), current(RealDisk(), Path(state)), reads_of,
                accept_lost_offsets=accept_lost_offsets)  # fmt: skip
    topology.checked()
    ending, found = stop or threading.Event(), list[Status]()

    def look(now: list[Status]) -> None:
        found[:] = now

    def run_(to_the_end: bool) -> bool:
        rescaling.run(site, ending, once=to_the_end, tell=tell, look=look)
        return not ending.is_set()

    with closing(site), site.alone():
        site.intervals()
        site.adopt()
        site.runs(once, run_)
    counts = [each.counts for each in found]
    return Computed(*(sum(each[name] for each in counts) for name in ("records", "produced", "late", "aside")))
