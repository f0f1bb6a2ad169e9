"""One registry replica as a process, for tests: python -m tests.integration.registry_replica '<settings as JSON>'."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import uvloop

from photon.embedded.stopping import stop_event
from photon.idregistry.process import ReplicaSettings, ServeError, serve_registry


def main() -> int:
    given = json.loads(sys.argv[1])
    settings = ReplicaSettings(
        name=given["name"],
        peers=given["peers"],
        directory=Path(given["directory"]),
        shards=given["shards"],
        id_rules={join: rule.encode() for join, rule in given.get("id_rules", {}).items()},
    )

    async def serve() -> None:
        stop = stop_event(with_parent=False)
        await serve_registry(settings, stop=stop, ready=lambda: print("ready", flush=True))

    try:
        uvloop.run(serve())
    except ServeError as error:
        print(f"error: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
