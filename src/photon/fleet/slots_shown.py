"""Finds events that each slot of a datacentre has accepted but not yet shown to readers, as its joiner reports.
Covers all slots in the registry that are not retired, so that no slot's ids are missed. If a joiner does not answer,
its slot holds watermarks back, unless it has nothing left to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from photon.config.clock import NEVER_NS
from photon.config.disk import Disk
from photon.fleet.polling import Heard
from photon.fleet.processes import Process, of_datacentre
from photon.idregistry.api import Slot
from photon.idregistry.client.whereabouts import listed
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.witness import KnownSlot
from photon.joiner.adopter import has_work_left
from photon.joiner.slot.identity import SPARK_NAME
from photon.joiner.slot.slot import STATE_NAME
from photon.spark.pipeline.journal import Journal
from photon.verifier.watermark import SlotShown


@dataclass(frozen=True, slots=True)
class SlotsShown:
    """Asks joiners. ``slots``: directory of the slots' states; ``known``: returns the registry's list of slots;
    ``gather``: asks processes; ``claimed``: slot of a join on Spark, left out because Spark itself reports its
    progress."""

    disk: Disk
    slots: Path
    datacentre: str
    known: Callable[[], Awaitable[list[KnownSlot] | Refusal]]
    gather: Callable[[list[Process]], Awaitable[list[Heard]]]
    claimed: str = ""

    async def ask(self) -> list[SlotShown]:
        known = await self.known()
        if isinstance(known, Refusal):
            return [
                SlotShown(
                    "any",
                    None,
                    f"the registry did not list the slots ({known.reason or known.status.name})",
                )
            ]
        own = [
            each
            for each in known
            if each.datacentre == self.datacentre and not each.retired and each.name != self.claimed
        ]
        processes = [
            of_datacentre("joiner", self.datacentre, slot.name, address)
            for slot, address in listed(own, self.datacentre)
        ]
        said: dict[str, int] = {}
        for heard in await self.gather(processes):
            for each in heard.details.get("unshown", ()):
                said[str(each["slot"])] = int(each["oldest_unshown_ns"])
        return [self._of(each, said) for each in own if self._counts(each)]

    def _counts(self, slot: KnownSlot) -> bool:
        """Returns True if the slot belongs to a joiner. A backfill's slot does not: it has no process and its output
        is published elsewhere. A slot that is being redone may have a process without an address."""
        return bool(slot.address) or self._is_here(slot.name)

    def _is_here(self, slot: str) -> bool:
        return self.disk.exists(self.slots / slot / STATE_NAME)

    def _of(self, slot: KnownSlot, said: Mapping[str, int]) -> SlotShown:
        if not self._is_here(slot.name):
            return SlotShown(slot.name, None, "its directory is not on this machine")
        journal = self.slots / slot.name / SPARK_NAME
        if self.disk.exists(journal):  # a join on Spark runs, or ran, next to dispatchers
            is_finished = Journal(self.disk, journal).is_finished()
            problem = "" if is_finished else "a batch of its join on Spark is not finished"
            return SlotShown(slot.name, NEVER_NS if is_finished else None, problem)
        if slot.name in said:
            return SlotShown(slot.name, said[slot.name])
        if not has_work_left(self.disk, self.slots / slot.name, Slot(slot.name, self.datacentre, "")):
            return SlotShown(slot.name, NEVER_NS)
        return SlotShown(slot.name, None, "its joiner does not answer")
