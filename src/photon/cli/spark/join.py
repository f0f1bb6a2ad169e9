"""``photon spark join``: runs the join of one datacentre as a Spark application."""

from __future__ import annotations

from typing import Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, deployed, on_spark
from photon.cli.tables import counted, say
from photon.cli.units import DURATION

WORDS = {
    "events": "lines read that name an event",
    "joined": "joined, and written here",
    "unmatched": "unmatched: no primary event came in time",
    "filtered": "filtered by the adapter",
    "rejected": "rejected by the adapter",
    "unreadable": "records without id, key or time: rejected",
    "late": "older than the registry remembers: late",
    "elsewhere": "registered in another datacentre, or by another slot",
    "own": "lines with the id of an event written here",
    "repeats": "lines with the id of another line in the same partition",
}


@click.command("join")
@deployed(datacentre="Datacentre of the logs; required if the file has several.")
@click.option("--once/--follow", default=False, help="Join the existing logs and stop, or follow them as they grow.")
@click.option("--trigger", "trigger_s", type=DURATION, default="1s", show_default=True,
              help="Minimum interval between two scans of the logs.")  # fmt: skip
@on_spark
def join(at: Deployed, **given: Any) -> int:
    """Join a datacentre's logs on Spark. Spark takes the place of a dispatcher and joiners.

    \b
    It registers every id first, so it may run while the services of any datacentre run. The event store of its
    datacentre must run. Driver and executors must mount the file systems of state, output and logs. It may be killed
    at any moment and started again.
    Examples:
      photon spark join --config photon.toml --datacentre east
      photon spark join --config photon.toml --datacentre east --once -o json
      photon spark join --config photon.toml --datacentre east --master spark://host:7077 \\
        --spark spark.executor.memory=4g
    Exit codes: 0 done or stopped; 1 failed (start it again); 2 wrong usage; 3 done, but a log was gone before it was
    read, or output and state do not match.
    """
    import signal

    from photon.operations.spark_join import JoinOptions, start

    query = start(at.with_registry, at.base, at.datacentre, JoinOptions(**given), say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: query.ask_to_stop())
    query.awaitTermination()
    done = query.outcome
    assert done is not None, "the query has ended without an error"
    found = {"batches": done.batches, "events": done.counts, "waiting": done.waiting, "lost": done.lost}
    waits = {"waiting": "wait for their primary event"}
    at.show(found, counted({**done.counts, "waiting": done.waiting}, WORDS | waits))
    return ATTENTION if done.lost else DONE
