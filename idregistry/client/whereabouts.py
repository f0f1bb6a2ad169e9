"""The note that a joiner leaves in the registry when it opens its slot: its address and its process.

``HOST:PORT PROCESS`` if dispatchers can reach it; ``PROCESS`` alone if not, as when another joiner only redoes the
slot. So dispatchers find the joiners in the registry's list of slots (paper, 3.3: any joiner serves any event).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from photon.idregistry.witness import KnownSlot

AUTO = "auto"  # as host: this machine's host name


def noted(reached: str, process: str) -> str:
    """Returns a value of ``idregistry.api.Slot.address``. ``reached``: host:port, or empty."""
    return f"{reached} {process}" if reached else process


def reached_at(note: str) -> str:
    """Returns a note's host:port; empty if it has none that can be reached."""
    reached, space, _ = note.partition(" ")
    return reached if space and is_reachable(reached) else ""


def listed(
    slots: Iterable[KnownSlot], datacentre: str, named: Container[str] = ()
) -> Iterator[tuple[KnownSlot, str]]:
    """Yields (slot, host:port) of a datacentre's joiners in the registry's list, except addresses in ``named``."""
    for slot in slots:
        address = reached_at(slot.address)
        if address and slot.datacentre == datacentre and not slot.retired and address not in named:
            yield slot, address


def is_reachable(address: str) -> bool:
    """True if ``address`` is host:port with a valid port and not an any-host address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or len(port) > 5:
        return False
    return 0 < int(port) < 65536 and host not in ("0.0.0.0", "[::]") and not any(map(str.isspace, host))
