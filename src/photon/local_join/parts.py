"""Parts that ``photon join`` runs in its own way: the registry, a verifier that does not compare output with logs,
and relays of given sides. All other parts are those of ``photon serve datacentre``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from photon.adapters.logs.elsewhere import is_final
from photon.adapters.times import WITHOUT_TIME
from photon.assembly.registry import rule_hash
from photon.assembly.room import Room, Serve, Up
from photon.config.errors import UsageError
from photon.config.settings import SIDES
from photon.config.stopping import end, first, until
from photon.config.words import many
from photon.dispatcher.ledger import Verdict
from photon.dispatcher.status import Status as Dispatched
from photon.dispatcher.undecided import read_undecided
from photon.eventstore.api import OperatedStore, Progress
from photon.fleet.counters import VERDICTS
from photon.fleet.ledger import ledger_file
from photon.idregistry.replica.embedded import EmbeddedRegistry, RegistryConflict
from photon.joiner.engine import JoinerEngine
from photon.local_join.options import JoinFailed
from photon.local_join.site import SLOT
from photon.local_join.status import JoinResult, Status
from photon.outputs.log.copier import Copier
from photon.outputs.output_places import PublishedEnd
from photon.verifier.verifier import Verifier
from photon.verifier.watermark import SlotShown
from photon.verifier.watermark_keeper import PERIOD_S, OnlyTimes, WatermarkKeeper, within_ns

SHOW_S = 0.2
SETTLE_S = 60.0  # how long to wait at the end until registered records are durable in the output
NAMED = 3  # maximum number of missing primary logs to list


@dataclass(eq=False)
class OwnParts:
    """Builds the parts that ``photon join`` runs in its own way. ``say``: receives messages for the user. ``relays``:
    copy topics or another join's output."""

    room: Room
    show: Callable[[Status], None]
    say: Callable[[str], None]
    relays: Sequence[Copier]
    store_log: Path
    store_address: str | None  # `None` if the store is in this process

    def __post_init__(self) -> None:
        self.result = JoinResult()
        self._registry_failed = False
        self._began = time.monotonic()

    def all(self) -> dict[str, Serve]:
        found: dict[str, Serve] = {"registry": self.registry, "verifier": self.verifier}
        return found | ({"relay": partial(relay, self.relays, self.say)} if self.relays else {})

    async def registry(self, stop: asyncio.Event, up: Up) -> None:
        """Serves the registry. Raises UsageError, JoinFailed."""
        room, settings = self.room, self.room.settings.registry
        try:
            registry = await EmbeddedRegistry.open(
                room.state / "registry" / "local",
                shards=settings.shards,
                id_rules={room.pipeline.join: rule_hash(room.adapter(), room.digester)},
                uncertainty_ns=int(room.settings.clock.uncertainty * 1e9),
                retention_ns=None if settings.retention is None else int(settings.retention * 1e9),
                memory_limit=settings.memory_limit,
                lone=True,
                disk=room.disk,
                clock=room.clock,
            )
        except RegistryConflict as conflict:
            raise UsageError(f"{room.output}: {conflict}") from None
        room.near.registry = registry
        up()
        try:
            while not await until(stop, SHOW_S):
                if registry.failure is not None:
                    self._registry_failed = True
                    raise JoinFailed(registry.failure)
        finally:
            await registry.close()

    async def verifier(self, stop: asyncio.Event, up: Up) -> None:
        """Clears published records, keeps watermarks, and shows progress. Completes all remaining work after the
        dispatcher has stopped. Raises JoinFailed, VerifierDamaged, PublishedDamaged."""
        room, near, joiner = self.room, self.room.near, self._joiner
        assert near.registry is not None
        assert near.store is not None, "set by an earlier stage"
        slot = room.state / "slots" / SLOT
        watermarks = WatermarkKeeper(
            room.disk, room.clock, room.state, within_ns(room.settings, room.pipeline.join),
            undecided=lambda: read_undecided(ledger_file(room.state)),
            slots=self._slots,
            cursor=PublishedEnd(room.disk, slot.parent).look,
            timed=room.adapter().has_foreign_time,
        )  # fmt: skip
        findings = OnlyTimes(watermarks.published)
        verifier = Verifier(room.disk, slot, room.output, room.digester, near.registry, findings=findings)
        watermarks.open()
        if not room.adapter().has_foreign_time:
            self.say(WITHOUT_TIME)
        ending = asyncio.Event()
        tasks = [asyncio.create_task(verifier.run(ending)), asyncio.create_task(_sample(watermarks, ending))]
        up()
        try:
            while not stop.is_set() and not any(each.done() for each in tasks):
                if near.dispatcher is not None:
                    self._show(near.dispatcher.status(), await near.store.progress())
                await first(stop, tasks, timeout=SHOW_S)
            ending.set()
            await asyncio.gather(*tasks)
            if near.dispatched is None or self._registry_failed:  # the dispatcher never ran, or the registry failed
                return
            stopped = room.stop.is_set()
            if not await joiner.settle(SETTLE_S):
                what = "logged records are written when you run this again"
                raise JoinFailed(f"the registry did not answer for {SETTLE_S:g} s; {what}")
            await verifier.run_once()
            await watermarks.pass_()  # includes all verdicts of this run
            await self._end(near.store, near.dispatched)
            self.result = replace(
                self.result, unowned=verifier.total.refused + verifier.total.unreadable, stopped=stopped
            )
        finally:
            await end(tasks)
            watermarks.close()

    @property
    def _joiner(self) -> JoinerEngine:
        (joiner,) = self.room.near.joiners.values()
        assert joiner.opened is not None, "started by an earlier stage"
        return joiner.opened

    async def _slots(self) -> list[SlotShown]:
        return [SlotShown(SLOT, self._joiner.shell.oldest_unshown_ns)]

    async def _end(self, store: OperatedStore, seen: Dispatched) -> None:
        primary, say = await store.progress(), self.say
        self._show(seen, primary)
        self.result = JoinResult(
            unread=seen.unread, alike=seen.alike, unended=seen.unended, conflicting=seen.conflicting,
            ambiguous=primary.ambiguous, missing=primary.missing_logs,
        )  # fmt: skip
        if primary.missing_logs:
            await self._say_missing(store)
        if primary.unended:
            say(f"primary log {primary.unended}; events without a primary event wait until then, too")
        if primary.ambiguous:
            counted = many(primary.ambiguous, "key has", "keys have")
            say(f"{counted} several different primary events: {primary.ambiguous_example}")
        if seen.conflicting:
            counted = many(seen.conflicting, "line has", "lines have")
            say(f"{counted} the event id of an earlier line but different content, so not joined: {seen.conflict}")
        if bad := primary.bad_records:
            counted = many(bad, "primary record is", "primary records are")
            say(
                f"{counted} unreadable or without a key; no foreign event is joined with them "
                f"(the first are named in {self.store_log})"
            )
        if any(is_final(self.room.logs(side)) for side in SIDES):
            from photon.objects.costs import costs_said

            say(await costs_said(self.store_address, time.monotonic() - self._began))

    async def _say_missing(self, store: OperatedStore) -> None:
        """Reports the primary logs that events wait for."""
        details = await store.details()
        logs = [each for each in details.unavailable if each.keys and not each.forgotten]
        if len(logs) > NAMED:
            self.say(f"{len(logs):,} primary logs cannot be read; the first {NAMED}:")
        for each in logs[:NAMED]:
            todo = "make it readable, or fix the adapter"
            if not each.present:
                todo = (
                    "restore its file, or declare the events unmatched: run this again with "
                    f"--set join.{self.room.pipeline.join}.missing_logs=forget"
                )
            waiting = many(each.keys, "key waits", "keys wait")
            self.say(f"primary log {each.path}: {each.why}; {waiting} for it; {todo}")

    def _show(self, seen: Dispatched, primary: Progress) -> None:
        counts = {name: seen.verdicts[Verdict[name.upper()]] for name in VERDICTS}
        self.show(
            Status(
                at_s=time.monotonic() - self._began,
                ledger={"read": seen.read, **counts, "pending": seen.pending},
                foreign_read=seen.bytes_read,
                foreign_known=seen.bytes_known,
                primary_read=primary.bytes_read,
                primary_known=primary.bytes_known,
                primary_events=primary.events,
                missing_logs=primary.missing_logs,
                missing_keys=primary.missing_keys,
            )
        )


async def _sample(watermarks: WatermarkKeeper, ending: asyncio.Event) -> None:
    while not await until(ending, PERIOD_S):
        await watermarks.pass_()


async def relay(relays: Sequence[Copier], say: Callable[[str], None], stop: asyncio.Event, up: Up) -> None:
    """Copies new records until ``stop``. While a topic's brokers cannot be reached, all relays wait; ``say`` is
    called once when that begins and once when it ends."""
    from photon.outputs.topic_relay import TopicUnreachable

    away = set[Copier]()
    up()
    while not await until(stop, SHOW_S):
        for each in relays:
            try:
                await asyncio.to_thread(each.pass_on, time.time_ns())
            except TopicUnreachable as error:
                if each not in away:
                    away.add(each)
                    say(f"{error}; no event is declared unmatched until the topic can be read again")
            else:
                if each in away:
                    away.discard(each)
                    say(f"topic {each.name} can be read again")
