"""One registry replica as a process, for tests: python -m tests.integration.registry_replica '<settings as JSON>'."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import uvloop

from photon.config.clock import SystemClock
from photon.config.interval_clock import KernelTime
from photon.config.kernel_time import kernel_time
from photon.config.stopping import stop_event
from photon.idregistry.raft.options import RaftOptions
from photon.idregistry.replica import server
from photon.idregistry.replica.process import ServeError, serve_registry
from photon.idregistry.replica.server import ReplicaSettings
from photon.tables.timestamps.server import guest


class _Shifted(SystemClock):
    """Ahead by the number of seconds in a file, which the test rewrites."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now_ns(self) -> int:
        return super().now_ns() + int(self._file.read_text()) * 1_000_000_000


def main() -> int:
    given = json.loads(sys.argv[1])
    settings = ReplicaSettings(
        name=given["name"],
        peers=given["peers"],
        directory=Path(given["directory"]),
        shards=given["shards"],
        retention_s=given.get("retention_s"),
        uncertainty_s=given.get("uncertainty_s", 5.0),
        near=given.get("near", {}),
        require_sync=bool(given.get("require_sync")),
        id_rules={join: rule.encode() for join, rule in given.get("id_rules", {}).items()},
    )

    server.RaftOptions = partial(RaftOptions, **given.get("raft", {}))  # type: ignore[assignment,misc]

    async def serve() -> None:
        stop = stop_event(with_parent=False)
        await serve_registry(
            settings,
            stop=stop,
            ready=lambda: print("ready", flush=True),
            guests=[guest(SystemClock())] if given.get("oracle") else [],
            clock=_Shifted(Path(given["clock"])) if "clock" in given else None,
            kernel=(lambda: KernelTime(given["synchronised"], 1000)) if "synchronised" in given else kernel_time,
        )

    try:
        uvloop.run(serve())
    except ServeError as error:
        print(f"error: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
