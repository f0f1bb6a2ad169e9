"""``photon compute run --on spark``: runs a topology's file with ``spark/computing``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from photon.assembly.computing import default_state, load_topology, places_of
from photon.config.errors import UsageError
from photon.spark.computing.plan import Reads
from photon.spark.computing.run import Wish
from photon.spark.computing.run import run as run_
from photon.spark.session import session

if TYPE_CHECKING:
    from photon.computing.journal import Status


def run(
    file: Path,
    state: Path | None,
    *,
    once: bool,
    master: str | None,
    settings: Mapping[str, str],
    partitions: int,
    records: int,
    stop: threading.Event,
    tell: Callable[[str], None],
) -> Status:
    """Runs a topology's file like ``spark.computing.run.run``. Raises UsageError, TopologyError, SparkMissing."""
    topology = load_topology(file)
    base = file.resolve().parent
    reads = []
    for stream, source in topology.sources.items():
        places, kinds = places_of(source, base)
        for name, place in places.items():
            if not place.state.is_dir():
                raise UsageError(
                    f"the stream {stream}: {place.state} is not on this machine; mount it where driver and "
                    "executors can read it"
                )
            output, kept = place.output.resolve(), place.state.resolve()
            reads.append(Reads(stream, name, str(output), str(kept), kinds))
    wish = Wish(
        topology=topology,
        file=file,
        state=(state or default_state(file, topology)).resolve(),
        reads=reads,
        published={stream: (base / to).resolve() for stream, to in topology.published.items()},
        once=once,
        records=records,
        partitions=partitions,
    )
    name = f"photon compute {topology.name}"
    return run_(lambda: session(name, master=master, settings=settings), wish, stop, tell)
