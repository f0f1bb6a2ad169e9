"""The rules of copies with one removed each: the simulator must notice. None of this is in the production code.

Not here: that a file becomes final only when the copy has all of it. Existing final files are shipped as well, so
nothing is lost or doubled without this rule; it protects files that somebody moves away. ``CopyWorld.finishes``
checks it in every schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

from photon.idregistry.witness import Witness
from photon.joiner.copies import shipping
from photon.joiner.copies.api import Extension, Status
from photon.joiner.copies.kept import KeptCopy
from photon.joiner.copies.shipper import LocalFiles, Shipper
from photon.joiner.copies.shipping import LocalOutput
from photon.joiner.copies.taking import Lacking
from photon.joiner.slot.slot import SlotStore
from tests.simulation.copies.process import CopyVariant


class LocalLengthPublished(Shipper):
    """Rule 14: publishes locally durable output, regardless of what the copy has."""

    def bound(self, now: float, local: LocalFiles, whole: Witness, end: Witness) -> Witness:
        super().bound(now, local, whole, end)
        return whole


class WithinEvents(LocalOutput):
    """Rule 14: shipped data ends at any line, even within an event."""

    def _lines(self, log: int, number: int, start: int, wanted: int, end: int) -> bytes:
        whole = vars(shipping)["whole_events"]
        vars(shipping)["whole_events"] = len
        try:
            return super()._lines(log, number, start, wanted, end)
        finally:
            vars(shipping)["whole_events"] = whole


class ShipsWithinEvents(SlotStore):
    def copied_output(self) -> LocalOutput:
        whole = super().copied_output()
        return WithinEvents(whole.disk, whole.root, whole.name)


class NotSealed(KeptCopy):
    """Rule 14: the copy of a slot that is being retired keeps growing."""

    @property
    def sealed(self) -> bool:
        return False


class AtAnotherPlace(KeptCopy):
    """Rule 14: the keeper appends anything, wherever it belongs."""

    def _refusal(self, extension: Extension) -> Status:
        ends = self.look().ends
        if any(part.number < ends[part.log].number for part in extension.parts):
            return Status.ELSEWHERE
        return super()._refusal(Extension(extension.incarnation, ends, extension.parts, extension.shown))


class CopyDoesNotWin(SlotStore):
    """Rule 6: a start continues with what it finds."""

    def lacks(self, ends: Witness) -> Lacking:
        return {}


class OlderIncarnations(KeptCopy):
    """Rule 6: the keeper accepts data from a process that is no longer the newest."""

    def _refusal(self, extension: Extension) -> Status:
        older = Extension(self.incarnation, extension.ends, extension.parts, extension.shown)
        return super()._refusal(older if extension.incarnation < self.incarnation else extension)


@dataclass(frozen=True)
class CopyAblation:
    """A removed rule, and the violation the simulator must find then (a regular expression)."""

    variant: CopyVariant
    finds: str


FOLLOWS = "the copy does not follow its slot"
ABLATIONS: dict[str, CopyAblation] = {
    "rule 14: local length published": CopyAblation(
        CopyVariant(shipper=LocalLengthPublished, loses=1.0), "ahead of the copy"
    ),
    "rule 14: copy ends within an event": CopyAblation(
        CopyVariant(store=ShipsWithinEvents, sets=True), "shown in part"
    ),
    "rule 14: copy not sealed": CopyAblation(
        CopyVariant(kept=NotSealed, seals=False, loses=1.0, cuts_off=1.0, ships=(0.04,)),
        "changed under its readers|twice|cannot be published",
    ),
    "rule 14: copy not cleared before reopening": CopyAblation(CopyVariant(clears=False, loses=1.0), "twice"),
    "rule 14: copy extended at another offset": CopyAblation(CopyVariant(kept=AtAnotherPlace), FOLLOWS),
    "rule 6: copy not winning at a start": CopyAblation(
        CopyVariant(store=CopyDoesNotWin, puts_back=1.0, ships=(0.3,), slow=(0.0,)), FOLLOWS
    ),
    "rule 6: copy extended by an older incarnation": CopyAblation(
        CopyVariant(kept=OlderIncarnations, puts_back=1.0, ships=(0.3,), slow=(0.8,)), FOLLOWS
    ),
}
