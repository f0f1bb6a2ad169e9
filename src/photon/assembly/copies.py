"""Copies of output in a deployment file: who ships to whom, and ``photon serve copies``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from photon.config.errors import UsageError
from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.tls import Tls, towards
from photon.joiner.copies.api import keeper_of
from photon.joiner.copies.client import KeeperClient
from photon.joiner.copies.shipping import Copying

if TYPE_CHECKING:
    from photon.assembly.room import Room


def keepers(settings: Settings) -> list[str]:
    if settings.output.copies < 2:
        return []
    return sorted(name for name, pipeline in settings.datacentre.items() if pipeline.copies is not None)


def keeper(settings: Settings, datacentre: str) -> str | None:
    """The keeper of copies of a datacentre's slots. Prefers one that joins the same events: it is surely
    elsewhere."""
    known, join = keepers(settings), settings.datacentre[datacentre].join
    alike = [name for name in known if settings.datacentre[name].join == join]
    return keeper_of(datacentre, alike) or keeper_of(datacentre, known)


def copying_of(settings: Settings, datacentre: str, tls: Tls | None) -> Copying | None:
    """The keeper of copies of a datacentre's slots. `None` if one copy is enough. ``tls``: of its joiners."""
    at = keeper(settings, datacentre)
    address = None if at is None else settings.datacentre[at].copies
    if at is None or address is None:
        return None
    output = settings.output
    client = KeeperClient(address, towards(tls, identity(Role.COPIES, at)))
    return Copying(client, output.copies_wait, output.copies_required)


async def serve_copies(room: Room) -> None:
    """Keeps the copies of one datacentre. Raises UsageError, CannotListen."""
    from photon.joiner.copies.service import serve
    from photon.joiner.shell import die

    settings, name, address = room.settings, room.datacentre, room.pipeline.copies
    if address is None:
        raise UsageError(f"datacentre.{name}.copies: is not set; it says where the keeper of copies listens")
    kept = [each for each in sorted(settings.datacentre) if keeper(settings, each) == name]
    await serve(room.disk, room.state, kept, room.listen or address, room.stop, die, room.tls(Role.COPIES))
