"""Rules of computations after the join, with one removed each: the world must notice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from photon.computing.engine import Engine
from photon.computing.injector import Injector
from photon.computing.model import Computation
from photon.computing.owner import Owner
from photon.computing.publisher import Publisher
from photon.computing.store import Store
from photon.computing.wire import NEVER_NS, PUBLISH, Ack, Message, Watermark
from photon.config.disk import AppendFile
from photon.outputs import watermarks
from photon.outputs.cursor import Cursor
from photon.outputs.log.writer import LogWriter
from photon.outputs.watermarks import Pair
from tests.simulation.computed.world import LifeDisk
from tests.simulation.computing.ablations import unfenced
from tests.simulation.datacentres.ablations import AfterTheData, WaitingNotCounted
from tests.simulation.world.world import Variant


# -- the engine and its owner ----------------------------------------------------------------------------------------
def _early(self: Engine, wanted: Callable[[str], bool]) -> list[Message]:
    """Includes uncommitted records."""
    box = self._outbox
    early = [
        Message(self.id, target, items[-1].number, (*box._ways.get((self.id, target), ()), *items))
        for (_, target), items in box._fresh.items()
        if items and wanted(target)
    ]
    return [*early, *_outgoing(self)]


def sent_before_commit(self: Owner, now_ns: int) -> bool:
    busy = _read(self, now_ns)
    for message in _early(self.engine, lambda target: not target.startswith(PUBLISH)):
        self._links.send(message.target, message)
    return busy


def published_before_commit(self: Owner, now_ns: int) -> bool:
    busy = _read(self, now_ns)
    self._send([each for each in _early(self.engine, _is_published) if each.target.startswith(PUBLISH)])
    return busy


def _is_published(target: str) -> bool:
    return target.startswith(PUBLISH)


def acknowledged_before_published(self: Owner, message: Message, stream: str) -> None:
    self.engine.acknowledged(Ack(message.sender, message.target, message.upto))
    self.engine.commit()
    _show(self, message, stream)


_outgoing, _read, _show = Engine.outgoing, Owner._read, Owner._show


# -- watermarks ------------------------------------------------------------------------------------------------------
def newest_anywhere(pairs: Sequence[Pair], cursor: Cursor, kinds: Collection[str]) -> Pair | None:
    """The newest watermark, regardless of what was read."""
    return pairs[-1] if pairs else None


def of_those_present(self: Injector) -> Watermark:
    """Does not wait for senders that have said nothing."""
    marks = [feed.mark for feed in self._feeds if feed.mark.exact_ns > NEVER_NS]
    if self._complete or not marks:
        return _mark(self)
    return Watermark(min(each.exact_ns for each in marks), min(each.percentile_ns for each in marks), 0)


def not_waiting(self: Injector) -> Watermark:
    return _mark(self)._replace(waiting=0)


_mark = Injector.mark


# -- publishing ------------------------------------------------------------------------------------------------------
def remembers_nothing(self: LogWriter) -> None:
    """A start does not know what has been published."""
    _load(self)
    self.log = None


_load = LogWriter.load


def compares_nothing(self: Publisher, *state: Any) -> None:
    """Skips the comparison with the sender's state, which would otherwise refuse such a start."""


def never_synced(self: LifeDisk, path: Path) -> AppendFile:
    file: Any = _append(self, path)
    file.sync = lambda: None
    return cast(AppendFile, file)


_append = LifeDisk.append


@dataclass(frozen=True)
class Ablation:
    variant: Variant
    finds: str  # a regular expression over the violation


def _without(where: object, name: str, instead: object) -> Variant:
    return Variant(patches=((where, name, instead),))


WRONG = "lost|twice|came late|another state"
BELOW = "late|early|below|final"
ABLATIONS = {
    "no dedup": Ablation(_without(Computation, "dedup", False), "twice|came late"),
    "sent before the commit": Ablation(_without(Owner, "_read", sent_before_commit), WRONG),
    "published before the commit": Ablation(_without(Owner, "_read", published_before_commit), WRONG),
    "acknowledged before it is published": Ablation(_without(Owner, "_show", acknowledged_before_published), WRONG),
    "a start does not look at what was published": Ablation(
        Variant(patches=((LogWriter, "load", remembers_nothing), (Publisher, "_check", compares_nothing))),
        "twice",
    ),
    "lengths are published before what they promise": Ablation(
        _without(LifeDisk, "append", never_synced), "lost|unreadable|refused"
    ),
    "the sequencer is not compared": Ablation(_without(Store, "_owned", unfenced), WRONG),
    "the watermark is sampled after the data": Ablation(Variant(sampler=AfterTheData), BELOW),
    "a watermark is newer than what was read": Ablation(
        _without(watermarks, "newest_before", newest_anywhere), BELOW
    ),
    "present instead of expected injectors": Ablation(_without(Injector, "mark", of_those_present), BELOW),
    "late primaries hold nothing back": Ablation(Variant(sampler=WaitingNotCounted), BELOW),
    "late primaries are not counted as waiting": Ablation(_without(Injector, "mark", not_waiting), "called final"),
}
