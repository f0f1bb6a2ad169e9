"""Joiners that the deployment file does not name: which of those in the registry's list of slots are shown. Pure.

A slot stays listed under the address of its last process. So one that never answered is not shown: it may be long
gone. One that did and is silent is shown as down for ``SHOWN_S``, and then as gone; what it left undone is the
verifier's to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from photon.idregistry.witness import KnownSlot
from photon.joiner.whereabouts import listed

JOINERS_MAX = 256
SHOWN_S = 60.0


class Discovered:
    """Of one datacentre."""

    def __init__(self, datacentre: str, named: Iterable[str]) -> None:
        """``named``: addresses of the joiners of the file, which are shown anyway."""
        self._datacentre = datacentre
        self._named = frozenset(named)
        self._listed: dict[str, str] = {}
        self._answered_s: dict[str, float] = {}

    def heard_list(self, slots: Iterable[KnownSlot]) -> None:
        """The registry's list. While it does not answer the last one holds."""
        found = {slot.name: address for slot, address in listed(slots, self._datacentre, self._named)}
        self._listed = dict(sorted(found.items())[:JOINERS_MAX])
        self._answered_s = {name: at for name, at in self._answered_s.items() if name in self._listed}

    def candidates(self) -> Sequence[tuple[str, str]]:
        """(slot, host:port) of those to ask."""
        return list(self._listed.items())

    def shows(self, slot: str, *, up: bool, now_s: float) -> bool:
        """Whether this slot's joiner, which has just answered or not, is shown."""
        if up:
            self._answered_s[slot] = now_s
        last_s = self._answered_s.get(slot)
        return last_s is not None and now_s - last_s <= SHOWN_S
