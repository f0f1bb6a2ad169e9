"""Cache nodes served inside a test, on ports that stay theirs when they come again."""

from __future__ import annotations

from photon.adapters.contract import LogFile
from photon.config.serving import HealthyServer
from photon.eventstore.block_keys import block_keys
from photon.eventstore.cache_nodes.nodes import CacheNodes
from photon.eventstore.cache_nodes.service import CacheNode, CacheService, start_server
from photon.supervision.ports import free_ports
from tests.unit.eventstore.helpers import LineAdapter


class Served:
    """Nodes by name."""

    def __init__(self, names: list[str]) -> None:
        self.addresses = {n: f"127.0.0.1:{p}" for n, p in zip(names, free_ports(len(names)), strict=True)}
        self.nodes: dict[str, CacheNode] = {}
        self._running: dict[str, tuple[HealthyServer, CacheService]] = {}

    async def start(self, *names: str) -> None:
        """Empty ones."""
        for name in names or list(self.addresses):
            self.nodes[name] = CacheNode(1 << 22)
            self._running[name] = await start_server(self.nodes[name], self.addresses[name])

    async def stop(self, *names: str) -> None:
        for name in names or list(self._running):
            server, service = self._running.pop(name)
            await server.stop(0)
            service.close()


def put(nodes: CacheNodes, data: bytes, offset: int = 0) -> None:
    """Feeds a block of ``key,anything`` lines."""
    found = block_keys(LineAdapter({}), data, LogFile("a.log"))
    nodes.put("id", LogFile("a.log"), offset, data, found.hashes, found.starts[found.order])
