"""``photon serve relay``: copies another join's output from all its datacentres, or a topic's messages, into logs of
this pipeline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from photon.assembly.copies import keeper
from photon.assembly.room import Room
from photon.config.clock import NS_PER_S, Clock
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.settings import Settings, Side
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.topic_address import is_topic, topic_address
from photon.fleet.access import output_of
from photon.outputs.kafka_topic import open_relay
from photon.outputs.log.copier import Copier, say_whole
from photon.outputs.log.format import DURABLE_NAME
from photon.outputs.output_places import COPIES_NAME, OutputPlace
from photon.outputs.relay import Relay
from photon.outputs.topic_relay import TopicRelay, TopicUnreachable

POLL_S = 0.05
RETRY_S = 0.5  # pause between attempts to reach a broker
SAVE_S = 1.0
FIRST_S = 60.0  # an output may be missing for this long after the start
LAG_S = 1.0  # a shorter lag is shown as 0: a check takes that long

log = get_logger(__name__)


@dataclass(slots=True)
class Upstream:
    side: Side
    datacentre: str  # datacentre of the output, or address of the topic
    relay: Copier
    # `None` for a topic. A copy of another datacentre's output may lag behind the original unnoticed, so
    # it counts as complete only up to its newest change.
    place: OutputPlace | None = None
    slots: frozenset[str] = frozenset()  # slots that write the output, from the deployment file
    whole_ns: int = 0  # everything published up to this time is copied (wall clock)
    whole_s: float = 0.0  # the same moment by the monotonic clock
    looked_ns: int = 0
    shown_ns: int = 0
    said: str = ""
    unreachable: str = ""  # why the topic is unreachable

    def shown_by(self, now_ns: int) -> int:
        """Returns the time up to which every record that the output's readers can see is on this machine. Looks at
        most once a second. Raises OSError."""
        if abs(now_ns - self.looked_ns) >= NS_PER_S:
            self.looked_ns, place = now_ns, self.place
            absent = self.slots - ({state.name for state in place.states(RealDisk())} if place else set())
            self._tell(absent)
            if absent:
                return self.shown_ns
            self.shown_ns = now_ns
            if place is not None and place.live:
                changed = (path.stat().st_mtime_ns for path in place.copies[0].glob(f"*/{DURABLE_NAME}"))
                self.shown_ns = min(now_ns, max(changed, default=0))
        return self.shown_ns

    def _tell(self, absent: Collection[str]) -> None:
        names = ", ".join(sorted(absent))
        if names and names != self.said:
            log.warning(
                "some slots of the upstream output are on another machine or have never started, so their records "
                "are not copied, and no event is declared unmatched; bring them here or remove them from the "
                "deployment file",
                upstream=self.datacentre,
                slots=names,
            )
        self.said = names

    def said_unreachable(self, why: str) -> None:
        """Logs once when the topic becomes unreachable, and once when it can be read again."""
        if bool(why) != bool(self.unreachable):
            if why:
                log.warning("a topic cannot be read; no event is declared unmatched until it can", why=why)
            else:
                log.info("the topic can be read again", upstream=self.datacentre)
        self.unreachable = why

    @property
    def labels(self) -> dict[str, str]:
        return {"side": self.side, "upstream": self.datacentre}


def place_of(settings: Settings, base: Path, datacentre: str, side: Side, upstream: str) -> OutputPlace:
    """Finds the output of datacentre ``upstream``, whose records are the events of ``side`` in ``datacentre``: the
    original or a copy on this machine. Raises UsageError."""
    place = output_of(settings, base, upstream)
    if place.state.is_dir():
        return place
    kept_by = keeper(settings, upstream)
    if kept_by is not None and (state := base / settings.datacentre[kept_by].state).is_dir():
        return replace(place, copies=(state / COPIES_NAME / upstream,), live=True)
    raise UsageError(
        f"{place.state}: no such directory, so neither the output of {upstream} nor a copy of it (output.copies) "
        "is on this machine; copy its published files here and set their directory as "
        f"datacentre.{datacentre}.{side}"
    )


async def serve_relay(room: Room, *, accept_lost_offsets: bool = False) -> None:
    """Copies until told to stop. Raises UsageError, and any error that stops a ``Copier``."""
    settings, name = room.settings, room.datacentre
    sides = settings.relayed(name)
    if not sides:
        raise UsageError(
            f"datacentre.{name}: its join reads no other join's output and no topic, so there is nothing to relay"
        )
    places = await _places(room, {side: each for side, each in sides.items() if not is_topic(each)})
    async with contextlib.AsyncExitStack() as closing:
        upstreams = []
        for side, each, place in places:
            relay = Relay(RealDisk(), place, room.logs(side), each)
            closing.callback(relay.close)
            slots = frozenset(settings.slots(each))
            upstreams.append(Upstream(side, each, relay, place, slots, whole_s=room.clock.monotonic()))
        for side, source in sides.items():
            if is_topic(source) and (topic := await _topic(room, side, source, accept_lost_offsets)) is not None:
                closing.callback(topic.close)
                upstreams.append(Upstream(side, source, topic, whole_s=room.clock.monotonic()))
        address, metrics = room.pipeline.at("relay")[0], _metrics(room, upstreams)
        await closing.enter_async_context(room.answering("relay", address, metrics, room.tls()))
        log.info("relay serves", datacentre=name, upstream=", ".join(each.datacentre for each in upstreams))
        room.up()
        await _run(upstreams, room, list(sides))


async def _topic(room: Room, side: Side, address: str, accept_lost: bool) -> TopicRelay | None:
    """Opens a topic, waiting for a broker that does not answer. Returns `None` if told to stop. Raises UsageError,
    OffsetsGone."""
    named, file = topic_address(address, side), room.pipeline.kafka_client
    client = None if file is None else room.base / file
    said = ""
    while True:
        try:
            return await asyncio.to_thread(
                open_relay, room.disk, named, client, room.logs(side), accept_lost=accept_lost
            )
        except TopicUnreachable as error:
            if str(error) != said:
                said = str(error)
                log.warning("a topic cannot be read; no event is declared unmatched until it can", why=said)
        if await until(room.stop, RETRY_S):
            return None


async def _places(room: Room, sides: Mapping[Side, str]) -> list[tuple[Side, str, OutputPlace]]:
    """Finds all upstream outputs, waiting for their writers to start. Raises UsageError if one is missing after
    FIRST_S."""
    settings, until_s = room.settings, room.clock.monotonic() + FIRST_S
    upstreams = [(side, each) for side, join in sides.items() for each in settings.joining(join)]
    while True:
        try:
            return [(*each, place_of(settings, room.base, room.datacentre, *each)) for each in upstreams]
        except UsageError:
            if room.clock.monotonic() > until_s:
                raise
        if await until(room.stop, POLL_S):
            return []


async def _run(upstreams: Sequence[Upstream], room: Room, sides: Sequence[Side]) -> None:
    clock, stop = room.clock, room.stop
    saved = clock.monotonic()
    while not stop.is_set():
        copied = await asyncio.to_thread(_copy, upstreams, clock, stop.is_set)
        if clock.monotonic() - saved >= SAVE_S:
            await asyncio.to_thread(_save, upstreams)
            for side in sides:
                if (whole_ns := min(each.whole_ns for each in upstreams if each.side == side)) > 0:
                    await asyncio.to_thread(say_whole, room.disk, room.logs(side), whole_ns)
            saved = clock.monotonic()
        if not copied:
            await until(stop, POLL_S)
    await asyncio.to_thread(_save, upstreams)


def _copy(upstreams: Sequence[Upstream], clock: Clock, ends: Callable[[], bool]) -> int:
    """Copies for about a second, or until everything is copied. Returns the number of bytes."""
    until, copied = clock.monotonic() + SAVE_S, 0
    for each in upstreams:
        begun_ns, begun_s = each.shown_by(clock.now_ns()), clock.monotonic()
        try:
            for size in each.relay.step():
                copied += size
                if clock.monotonic() > until or ends():
                    break
            else:
                each.whole_ns, each.whole_s = begun_ns, begun_s
            each.said_unreachable("")
        except TopicUnreachable as error:
            each.said_unreachable(str(error))
    return copied


def _save(upstreams: Sequence[Upstream]) -> None:
    for each in upstreams:
        each.relay.save()


def _metrics(room: Room, upstreams: Sequence[Upstream]) -> ProcessMetrics:
    async def read(into: Readings) -> None:
        behind = await asyncio.to_thread(lambda: [each.relay.behind() for each in upstreams])
        for each, lag_bytes in zip(upstreams, behind, strict=True):
            late_s = room.clock.monotonic() - each.whole_s
            values = {
                "bytes_total": each.relay.bytes,
                "events_total": each.relay.events,
                "lag_bytes": lag_bytes,
                "lag_seconds": late_s if late_s >= LAG_S else 0.0,
            }
            into.put_all("photon_relay", values, **each.labels)

    def details() -> dict[str, Any]:
        return {"join": room.pipeline.join, "upstream": [each.labels for each in upstreams]}

    return ProcessMetrics([read, free_space({"state": room.state})], details)
