"""Processes that the deployment file does not name: which of them are asked, and which are shown. Pure.

Joiners stand in the registry's list of slots, under the address of their last process; dispatchers that took a free
name are named by those that they share a state with. One that never answered is not shown: it may be long gone. One
that did and is silent is shown as down for ``SHOWN_S``, and then as gone; what it left undone is the verifier's to
tell, or another worker's to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from photon.idregistry.witness import KnownSlot
from photon.joiner.whereabouts import listed
from photon.status.gathering import Heard

PROCESSES_MAX = 256
SHOWN_S = 60.0


class _Found:
    """Names and addresses as last heard, and when each last answered."""

    def __init__(self) -> None:
        self._listed: dict[str, str] = {}
        self._answered_s: dict[str, float] = {}

    def _hear(self, found: Mapping[str, str]) -> None:
        self._listed = dict(sorted(found.items())[:PROCESSES_MAX])
        self._answered_s = {name: at for name, at in self._answered_s.items() if name in self._listed}

    def candidates(self) -> Sequence[tuple[str, str]]:
        """(name, host:port) of those to ask."""
        return list(self._listed.items())

    def shows(self, name: str, *, up: bool, now_s: float) -> bool:
        """Whether this process, which has just answered or not, is shown."""
        if up:
            self._answered_s[name] = now_s
        last_s = self._answered_s.get(name)
        return last_s is not None and now_s - last_s <= SHOWN_S


class Discovered(_Found):
    """Joiners of one datacentre."""

    def __init__(self, datacentre: str, named: Iterable[str]) -> None:
        """``named``: addresses of the joiners of the file, which are shown anyway."""
        super().__init__()
        self._datacentre = datacentre
        self._named = frozenset(named)

    def heard_list(self, slots: Iterable[KnownSlot]) -> None:
        """The registry's list. While it does not answer the last one holds."""
        self._hear({slot.name: address for slot, address in listed(slots, self._datacentre, self._named)})


class DiscoveredWorkers(_Found):
    """Dispatchers of one datacentre that share a state."""

    def __init__(self, named: Iterable[str]) -> None:
        """``named``: addresses of the file, which are asked anyway."""
        super().__init__()
        self._named = frozenset(named)

    def heard_workers(self, heard: Iterable[Heard], here: Mapping[str, str]) -> None:
        """What dispatchers said; ``here``: of the state on this machine, name -> host:port. While none answers and
        there is no state here, the last one holds."""
        said = [each.details["workers"] for each in heard if each.details.get("workers")]
        found = {str(one["worker"]): str(one["address"]) for workers in said for one in workers} | dict(here)
        if found:
            self._hear({name: address for name, address in found.items() if address not in self._named})


def once(heard: Sequence[Heard]) -> list[Heard]:
    """Without dispatchers that were heard before at another address: one name may lead to any of several."""
    seen: set[str] = set()
    found = []
    for each in heard:
        worker = each.details.get("worker") if each.target.service == "dispatcher" else None
        if worker is None or worker not in seen:
            found.append(each)
        if worker is not None:
            seen.add(worker)
    return found
