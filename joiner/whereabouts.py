"""What a joiner has the registry note of it when it opens its slot: where it is reached, and which process it is.

``HOST:PORT PROCESS``, where dispatchers reach it; ``PROCESS`` alone where nobody does, as when a slot is only redone
by another joiner. So the registry's list of slots tells dispatchers which joiners there are (paper, 3.3: any joiner
serves any event).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from photon.idregistry.witness import KnownSlot

AUTO = "auto"  # in place of a host: this machine's host name


def noted(reached: str, process: str) -> str:
    """For ``idregistry.api.Slot.address``. ``reached``: host:port, or empty."""
    return f"{reached} {process}" if reached else process


def reached_at(note: str) -> str:
    """host:port of a note; empty where it names none that can be called."""
    reached, space, _ = note.partition(" ")
    return reached if space and is_reachable(reached) else ""


def listed(slots: Iterable[KnownSlot], datacentre: str, named: Container[str]) -> Iterator[tuple[KnownSlot, str]]:
    """(slot, host:port) of the joiners of a datacentre that the registry's list tells of, beside those at addresses
    that the deployment file names."""
    for slot in slots:
        address = reached_at(slot.address)
        if address and slot.datacentre == datacentre and not slot.retired and address not in named:
            yield slot, address


def is_reachable(address: str) -> bool:
    """Whether this is host:port with a port that something can listen on, and no address that means every one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or len(port) > 5:
        return False
    return 0 < int(port) < 65536 and host not in ("0.0.0.0", "[::]") and not any(map(str.isspace, host))
