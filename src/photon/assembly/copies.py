"""The keepers of output's copies according to a deployment file, and ``photon serve copies``."""

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
    """The keeper of copies of a datacentre's slots. Prefers a datacentre that joins the same events, as it is
    certainly elsewhere."""
    known, join = keepers(settings), settings.datacentre[datacentre].join
    alike = [name for name in known if settings.datacentre[name].join == join]
    return keeper_of(datacentre, alike) or keeper_of(datacentre, known)


def copying_of(settings: Settings, datacentre: str, tls: Tls | None) -> Copying | None:
    """The keeper of copies of a datacentre's slots. `None` if one copy is enough. ``tls``: that of its joiners."""
    at = keeper(settings, datacentre)
    if at is None:
        return None
    from photon.joiner.copies.client import KeeperClient

    output = settings.output
    client = KeeperClient(settings.datacentre[at].at("copies")[0], towards(tls, identity(Role.DATACENTRE, at)))
    return Copying(client, output.copies_wait, output.copies_required)


async def serve_copies(room: Room) -> None:
    """Keeps the copies of one datacentre. Raises CannotListen."""
    from photon.joiner.copies.service import serve
    from photon.joiner.shell import die

    settings, name = room.settings, room.datacentre
    kept = [each for each in sorted(settings.datacentre) if keeper(settings, each) == name]
    at = room.at(room.pipeline.at("copies")[0])
    await serve(room.disk, room.state, kept, at, room.stop, room.up, die, room.tls())
