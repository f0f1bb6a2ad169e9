"""Chooses the keepers of output copies from a deployment file, and runs ``photon serve copies``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from photon.config.roles import Role, identity
from photon.config.settings import Settings
from photon.config.tls import Tls, towards
from photon.joiner.copies.api import keeper_of
from photon.joiner.copies.shipping import Copying

if TYPE_CHECKING:
    from photon.assembly.room import Room


def keepers(settings: Settings) -> list[str]:
    if settings.output.copies < 2:
        return []
    return sorted(settings.datacentre)


def keeper(settings: Settings, datacentre: str) -> str | None:
    """Returns the datacentre that keeps copies of a datacentre's slots. Prefers one that joins the same events,
    because it is certainly in another place."""
    known, join = keepers(settings), settings.datacentre[datacentre].join
    alike = [name for name in known if settings.datacentre[name].join == join]
    return keeper_of(datacentre, alike) or keeper_of(datacentre, known)


def copying_of(settings: Settings, datacentre: str, tls: Tls | None) -> Copying | None:
    """Returns the client of the keeper of a datacentre's slots; `None` if no copies are kept. ``tls``: the joiners'
    TLS settings."""
    at = keeper(settings, datacentre)
    if at is None:
        return None
    from photon.joiner.copies.client import KeeperClient

    output = settings.output
    client = KeeperClient(settings.datacentre[at].at("copies")[0], towards(tls, identity(Role.DATACENTRE, at)))
    return Copying(client, output.copies_wait, output.copies_required)


async def serve_copies(room: Room) -> None:
    """Runs the keeper of one datacentre. Raises CannotListen."""
    from photon.joiner.copies.service import serve
    from photon.joiner.shell import die

    settings, name = room.settings, room.datacentre
    kept = [each for each in sorted(settings.datacentre) if keeper(settings, each) == name]
    at = room.at(room.pipeline.at("copies")[0])
    await serve(room.disk, room.state, kept, at, room.stop, room.up, die, room.tls())
