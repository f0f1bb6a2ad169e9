"""Where a joiner process works: its slot, where it listens, and where dispatchers reach it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from photon.config.errors import UsageError
from photon.config.settings import NAME_MAX, Settings
from photon.joiner.auto_joiner import AUTO_MAX, auto_name, is_auto
from photon.joiner.whereabouts import AUTO, is_reachable, noted

EVERY = ("0.0.0.0", "[::]")
"""Hosts to listen at, and not to call."""


@dataclass(frozen=True, slots=True)
class JoinerPlace:
    """``slot`` None: it takes a free one when it starts."""

    slot: str | None
    listen: str
    reached: str

    def note(self, process: str) -> str:
        """For the registry, which tells dispatchers."""
        return noted(self.reached, process)


def joiner_place(
    settings: Settings, datacentre: str, slot: str | None, *, listen: str | None, address: str | None
) -> JoinerPlace:
    """What ``--slot``, ``--listen`` and ``--address`` mean. Raises UsageError."""
    pipeline = settings.datacentre[datacentre]
    if slot is None and len(pipeline.joiners) == 1:
        slot = next(iter(pipeline.joiners))
    if slot == AUTO:
        return _unnamed(settings, datacentre, None, listen, address)
    if slot is not None and slot not in pipeline.joiners and is_auto(slot, datacentre):
        return _unnamed(settings, datacentre, slot, listen, address)
    if slot not in pipeline.joiners:
        known = ", ".join(sorted(pipeline.joiners)) or "none"
        raise UsageError(
            f"--slot {slot or ''}: not a joiner of datacentre {datacentre}; there are: {known}; "
            f"--slot {AUTO} takes a free one"
        )
    reached = _reached(address) or pipeline.joiners[slot].address
    return JoinerPlace(slot, listen or pipeline.joiners[slot].address, reached)


def listening_place(listen: str | None, address: str | None, what: str) -> tuple[str, str]:
    """(where to listen, where it is reached) of a process that is not in the deployment file. Raises UsageError."""
    reached = _reached(address)
    if listen is None and not reached:
        raise UsageError(
            f"{what} needs --address HOST:PORT, where it is reached, or --listen HOST:PORT: the file says neither"
        )
    if not reached and listen is not None:
        if listen.rpartition(":")[0] in EVERY:
            raise UsageError(f"--listen {listen}: is every address of this machine; name the one to call: --address")
        reached = _reached(listen, "--listen")
    return listen or reached, reached


def _unnamed(
    settings: Settings, datacentre: str, slot: str | None, listen: str | None, address: str | None
) -> JoinerPlace:
    if len(auto_name(datacentre, AUTO_MAX)) > NAME_MAX:
        raise UsageError(f"--slot {AUTO}: the name of datacentre {datacentre} is too long for slots named after it")
    where, reached = listening_place(listen, address, f"--slot {slot or AUTO}")
    return JoinerPlace(slot, where, reached)


def _reached(address: str | None, option: str = "--address") -> str:
    if address is None:
        return ""
    host, colon, port = address.rpartition(":")
    found = f"{socket.gethostname()}{colon}{port}" if host == AUTO else address
    if not is_reachable(found):
        raise UsageError(f"{option} {address}: must be host:port, for instance joiner-1:7101, or {AUTO}:7101")
    return found


def file_slots(settings: Settings) -> list[str]:
    """Slots that the deployment file names, in all datacentres."""
    return [slot for pipeline in settings.datacentre.values() for slot in pipeline.joiners]
