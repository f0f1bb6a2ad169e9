"""Whether anybody reads a datacentre's foreign logs now."""

from __future__ import annotations

import asyncio
from pathlib import Path

from photon.config.settings import Settings
from photon.config.tls import Tls, towards
from photon.fleet.asking import dispatchers_of
from photon.fleet.processes import KINDS
from photon.supervision.supervisor import healthy


async def dispatcher_serves(settings: Settings, base: Path, datacentre: str, tls: Tls | None, timeout: float) -> bool:
    """Whether any dispatcher of the datacentre that is known here says so, within ``timeout`` seconds."""
    asked = [
        healthy(each.address or "", KINDS[each.kind].health, timeout, towards(tls, each.identity))
        for each in dispatchers_of(settings, base, datacentre)
    ]
    return any(await asyncio.gather(*asked))
