"""What answering a look-up costs the event store, by the size of its batch: python -m bench.components.look_ups.

CPU microseconds a key from the request's bytes to the answer's, and back to columns, in one thread: with the records
in the cache of the own process, and with none there, so that they are read from a plain log. A batch's keys lie
together, a tenth of the records there. The least of some rounds counts.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.components.cache import adapter, read_all, write_log
from photon.adapters.logs.identity import log_name
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.eventstore import columns
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import LookUpCode
from photon.eventstore.engine import open_map
from photon.eventstore.file_map import MapSettings
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.segments import CACHE_BYTES_MAX, CacheEventStore
from photon.eventstore.tiered import TieredEventStore

SIZES = (1, 10, 20, 100, 1000)
CACHES = {"cache": CACHE_BYTES_MAX, "log": 1}


@contextmanager
def opened(directory: Path, state: Path, cache_bytes: int) -> Iterator[TieredEventStore]:
    """What answers look-ups, when all of ``directory`` is read."""
    file_map, _ = open_map(state, MapSettings(b"rule"), log_name, RealDisk(), SystemClock(), None)
    cache = CacheEventStore(adapter(), cache_bytes)
    read_all(directory, cache, file_map)
    logs = LogsEventStore(directory, adapter(), lambda identity: "queries.log")
    yield TieredEventStore(cache, file_map, logs, log_name, lambda: NEVER_NS)
    logs.close()
    file_map.close()


def batches(keys: Sequence[bytes], size: int, count: int) -> list[bytes]:
    """Requests."""
    rng = random.Random(5)
    begins = [rng.randrange(len(keys) + 1 - 10 * size) for _ in range(count)]
    parts = [rng.sample(keys[at : at + 10 * size], size) for at in begins]
    return [columns.request("", part, [NEVER_NS] * size).SerializeToString() for part in parts]


def ask(store: TieredEventStore, requests: Sequence[bytes]) -> None:
    """Each is answered in full."""
    for request in requests:
        keys, as_of = columns.asked(pb.EventLookUpRequest.FromString(request))
        reply = columns.reply(store.look_up(keys, as_of)).SerializeToString()
        found = columns.answered(pb.EventLookUpReply.FromString(reply), len(keys))
        assert set(found.codes) == {LookUpCode.FOUND}, "or nothing was measured"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        logs = Path(name) / "logs"
        keys = write_log(logs, options.events)
        print(f"load average {os.getloadavg()[0]:.1f}; CPU microseconds a key, in batches of {SIZES}")
        for what, cache_bytes in CACHES.items():
            with opened(logs, Path(name) / what, cache_bytes) as store:
                costs = []
                for size in SIZES:
                    requests = batches(keys, size, max(20, 1000 // size))
                    took = []
                    for _ in range(options.rounds):
                        began = time.process_time()
                        ask(store, requests)
                        took.append(time.process_time() - began)
                    costs.append(min(took) / len(requests) / size * 1e6)
                print(f"{what:6}", "  ".join(f"{cost:8.2f}" for cost in costs))


if __name__ == "__main__":
    main()
