"""Rules of the engine with one removed each: the world must notice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from photon.computing.engine import Engine
from photon.computing.model import Computation, Record
from photon.computing.stage import Stage
from photon.computing.standing import Standing, least
from photon.computing.store import Store
from photon.computing.topology import Topology
from photon.computing.wire import ENDED_NS, Ack, Message
from tests.simulation.computing.world import Echo, Variant


@dataclass(frozen=True)
class Ablation:
    variant: Variant
    finds: str  # a regular expression over the violation


def sent_before_commit(self: Engine) -> list[Message]:
    box = self._outbox
    early = [
        Message(self.id, target, items[-1].number, (*box._ways.get((self.id, target), ()), *items))
        for (_, target), items in box._fresh.items()
    ]
    return [*_outgoing(self), *early]


def present_only(self: Standing, stream: str, senders: Collection[str], exact: bool) -> tuple[int, int]:
    marks = [self.heard[sender][stream] for sender in senders if stream in self.heard.get(sender, {})]
    lows = [mark.exact_ns if exact else mark.percentile_ns for mark in marks]
    return min(lows, default=-ENDED_NS), 0 if exact else sum(mark.waiting for mark in marks)


def acknowledged_before_commit(self: Engine) -> list[Ack]:
    out = [
        Ack(name, self.id, least(self._standing.taken(name, self._interval)), owner=owner)
        for name, owner in sorted(self._to_ack)
    ]
    self._to_ack.clear()
    return out


def not_waiting(self: Standing, stream: str, senders: Collection[str], exact: bool) -> tuple[int, int]:
    return _low(self, stream, senders, exact)[0], 0


def unfenced(self: Any, sequencer: int) -> Any:
    """Checks neither the sequencer nor whether it is retired."""
    return self._now()[1]


def any_order(self: Engine, message: Message) -> bool:
    return True


def any_consumer(self: Topology, producer: Mapping[str, str]) -> None:
    """Accepts any consumer of weak productions."""


def end_alone(self: Standing, sender: str, successors: Iterable[str]) -> None:
    self.ended.add(sender)
    self.heard.pop(sender, None)


def holds_nothing(self: Stage, key: str, records: Sequence[Record], reason: str) -> None:
    """Records put aside run under the watermark at repair time."""
    low_of, self._low_of = self._low_of, lambda key: ENDED_NS  # type: ignore[method-assign]
    _block(self, key, records, reason)
    self._low_of = low_of  # type: ignore[method-assign]


_block = Stage._block
_outgoing = Engine.outgoing
_low = Standing.low
LOST_OR_TWICE = "lost|twice|does not come to rest"
ABLATIONS = {
    "no dedup": Ablation(Variant(((Computation, "dedup", False),)), "twice"),
    "sent before the commit": Ablation(Variant(((Engine, "outgoing", sent_before_commit),)), LOST_OR_TWICE),
    "acknowledged before the commit": Ablation(Variant(((Engine, "acks", acknowledged_before_commit),)), "lost"),
    "weak for a consumer that counts": Ablation(
        Variant(((Echo, "idempotent", True), (Topology, "_check_weak", any_consumer))), "twice"
    ),
    "the sequencer is not compared": Ablation(Variant(((Store, "_owned", unfenced),)), LOST_OR_TWICE),
    "the watermark is sampled after the data": Ablation(Variant(sampled_late=True), "late|final|early"),
    "present instead of expected senders": Ablation(Variant(((Standing, "low", present_only),)), "late|final"),
    "late ones are not counted as waiting": Ablation(Variant(((Standing, "low", not_waiting),)), "called final"),
    "a blocked key does not hold its watermark": Ablation(Variant(((Stage, "_block", holds_nothing),)), "late"),
    "predecessors are not waited for": Ablation(
        Variant(((Engine, "_parents_ended", any_order),)), "out of order|late"
    ),
    "successors are not waited for": Ablation(Variant(((Standing, "end", end_alone),)), "late"),
}
