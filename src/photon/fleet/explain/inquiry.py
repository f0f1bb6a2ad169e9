"""Asks all processes about one event: the dispatchers and joiners of all datacentres and, through one of them, the
registry. If a process does not answer, searches its files on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.config.metrics.service import PART
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, Tls, open_channel, towards, unreachable
from photon.dispatcher.database import STATE_NAME
from photon.fleet.access import output_of, registry_of, tls_of
from photon.fleet.explain import explain_pb2 as pb
from photon.fleet.explain.dispatchers import foreign_logs, in_retry_store, in_waiting_files, search_logs
from photon.fleet.explain.evidence import Evidence, decode
from photon.fleet.explain.outputs import search_place, search_redo_logs, slots_of
from photon.fleet.explain.question import CHUNK_BYTES, Budget, Question
from photon.fleet.explain.service import EXPLAIN, exported
from photon.fleet.explain.story import Heard, Story, tell
from photon.fleet.look import processes_of
from photon.fleet.processes import KINDS, READERS, Process
from photon.idregistry.api import Digester
from photon.idregistry.client.deployment_key import deployment_key
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import Traced
from photon.idregistry.witness import KnownSlot
from photon.outputs import OutputPlace
from photon.outputs import decode as decode_line
from photon.outputs.content import FileContent
from photon.outputs.output_places import EXPORTS_DIRECTORY
from photon.spark.pipeline.journal import journal_of

LIST_S = 2.0
TRACE_S = 3.0
CONNECT_MS = 2_000  # time limit for one connection attempt, because an address may be dead
SHARE = 0.7  # share of the remaining time for one round of questions, so that some is left for the next
LEAST_S = 0.5
_OPTIONS = (("grpc.min_reconnect_backoff_ms", CONNECT_MS),)  # gRPC's option for the time limit of one attempt


@dataclass(frozen=True, slots=True)
class Asking:
    """The user's limits. ``base``: directory of the deployment file. ``seconds``: time limit for the whole search."""

    settings: Settings
    base: Path
    tls: Tls | None
    seconds: float
    progress: Callable[[str, int], None] = lambda what, total: None
    operator: bool = False  # may ask the registry directly, with the deployment's key


async def explain(asking: Asking, question: Question) -> Story:
    """Returns the story as far as it can be found, with a list of the missing parts. If several joins have the event,
    returns the story from the last join in their chain, with the others in ``upstream``. Raises UsageError for
    unusable settings."""
    until = time.monotonic() + asking.seconds
    async with registry_of(asking.settings, asking.tls) as registry:
        slots = await registry.recovery.list_slots(timeout=min(LIST_S, asking.seconds / 4))
        stories = await _stories(asking, question, registry, slots, until, asking.settings.chain())
    return replace(stories[0], upstream=stories[1:])


async def _stories(
    asking: Asking,
    question: Question,
    registry: RegistryClient,
    slots: Sequence[KnownSlot] | Refusal,
    until: float,
    joins: Sequence[str],
) -> list[Story]:
    """Returns the stories of the joins that have the event, and of those that its primary event came from. If none
    has it, returns one story that says so. Gathers cheap evidence first; searches logs only if no join has the
    event."""
    inquiries = [_Inquiry(asking, question, registry, join, slots, until) for join in joins]
    await asyncio.gather(*(each.look() for each in inquiries))
    if not any(each.known for each in inquiries):
        await asyncio.gather(*(each.look_in_logs() for each in inquiries))
    known = [each for each in inquiries if each.known]
    if not known:
        return [_told(question, inquiries)]
    stories = [replace(_told(question, [each]), join=each.join) for each in known]
    for each in known:
        upstream = asking.settings.join[each.join].upstream("primary")
        event_id = None if upstream is None else await asyncio.to_thread(each.primary_event)
        if upstream is not None and event_id is not None:
            above = asking.settings.chain(upstream)
            stories += await _stories(asking, Question(event_id), registry, slots, until, above)
    return stories


async def explained_for(
    identity: str, settings: Settings, base: Path, question: Question, seconds: float
) -> dict[str, Any]:
    """Returns the story as JSON. ``identity``: identity of the process that asks. Raises UsageError."""
    asking = Asking(settings, base, tls_of(settings, base, identity), seconds, operator=identity == OPERATOR)
    return (await explain(asking, question)).as_json()


class _Inquiry:
    def __init__(
        self,
        asking: Asking,
        question: Question,
        registry: RegistryClient,
        join: str,
        slots: Sequence[KnownSlot] | Refusal,
        until: float,
    ) -> None:
        self.join = join
        self._asking = asking
        self._question = question
        self._registry = registry
        self.traced: Traced | None = None
        self.problem = (slots.reason or slots.status.name) if isinstance(slots, Refusal) else ""
        known: Sequence[KnownSlot] = [] if isinstance(slots, Refusal) else slots
        names = asking.settings.joining(join)
        self.places = [_Datacentre(asking, name, question, known, until) for name in names]

    async def look(self) -> None:
        await asyncio.gather(*(place.look() for place in self.places))
        await self._trace()

    async def look_in_logs(self) -> None:
        await asyncio.gather(*(place.look_in_logs() for place in self.places))
        if self.traced is None:
            await self._trace()

    @property
    def known(self) -> bool:
        return any(place.evidence.named() for place in self.places) or bool(self.traced and self.traced.slot)

    def primary_event(self) -> bytes | None:
        """Returns the id of this event's primary event; `None` if it cannot be found here."""
        return next((found for place in self.places if (found := place.primary_event()) is not None), None)

    async def _trace(self) -> None:
        """Asks the registry through a dispatcher, which has the deployment's key. If none answers, an operator's
        inquiry asks it directly."""
        times = (place.evidence.time_ns() for place in self.places)
        time_ns = next((each for each in times if each is not None), self._question.time_ns)
        if time_ns is None:
            return
        ids = (place.evidence.event_id() for place in self.places)
        event_id = next((each for each in ids if each is not None), self._question.event_id)
        for place in self.places:
            evidence = await place.trace(event_id, time_ns)
            if evidence is not None and evidence.traced is not None:
                self.traced = evidence.traced
                return
            self.problem = evidence.registry_problem if evidence is not None else self.problem
        self.problem = self.problem or "no dispatcher answered that could ask the registry"
        if self._asking.operator:
            await self._trace_directly(event_id, time_ns)

    async def _trace_directly(self, event_id: bytes, time_ns: int) -> None:
        settings = self._asking.settings
        try:
            key = deployment_key(settings, self._asking.base)
        except PhotonError as error:
            self.problem = str(error)
            return
        digest = Digester(key, self.join).digest(event_id)
        found = await self._registry.recovery.trace(digest, time_ns, timeout=TRACE_S)
        if isinstance(found, Refusal):
            self.problem = found.reason or found.status.name
        else:
            self.traced = found


def _told(question: Question, inquiries: Sequence[_Inquiry]) -> Story:
    heard = [place.heard() for each in inquiries for place in each.places]
    traced = next((each.traced for each in inquiries if each.traced is not None), None)
    asked = "" if traced is not None else next((each.problem for each in inquiries), "")
    return tell(question, heard, traced, asked)


class _Datacentre:
    def __init__(
        self, asking: Asking, name: str, question: Question, slots: Sequence[KnownSlot], until: float
    ) -> None:
        self.name = name
        self.evidence = Evidence()
        self._missing: list[str] = []
        self._asking, self._question, self._slots, self._until = asking, question, slots, until
        self._pipeline = asking.settings.datacentre[name]
        self._state = asking.base / self._pipeline.state
        self._output = asking.base / self._pipeline.output
        found = processes_of(asking.settings, name, slots)
        self._dispatchers = [each for each in found if each.kind in READERS]
        self._joiners = [each for each in found if each.kind == "joiner"]
        self._answers: Process | None = None  # the first dispatcher that answered
        self._silent: dict[str, str] = {}  # joiner -> why it did not answer

    def heard(self) -> Heard:
        return Heard(self.name, self.evidence, tuple(dict.fromkeys(self._missing)))

    def primary_event(self) -> bytes | None:
        """Returns the primary event's id if that event comes from another join's output; reads it from the local log
        made from that output."""
        for record in self.evidence.records:
            if record.primary_file is None or record.primary_offset is None:
                continue
            path = self._asking.base / self._pipeline.primary / record.primary_file
            with suppress(OSError, PhotonError):
                line, _, _ = FileContent(RealDisk(), path, record.primary_offset).read(CHUNK_BYTES).partition(b"\n")
                return decode_line(line).event_id[0]
        return None

    # -- asking --------------------------------------------------------------------------------------------------
    async def look(self) -> None:
        budget = Budget(self._left_s, time.monotonic, self._asking.progress)
        silent, covered = await self._ask_dispatchers(), await self._ask_joiners()
        here = self._state.is_dir()
        if not silent and self._pipeline.on_spark:
            covered.add(self._pipeline.spark_slot(self.name))
        if silent and here:
            self.evidence.add(await asyncio.to_thread(self._waiting, budget))
            self.evidence.add(await asyncio.to_thread(exported, self._state, self._output, self._question, budget))
        await self._look_at_slots(covered, budget)

    def _waiting(self, budget: Budget) -> Evidence:
        if self._pipeline.on_spark:
            return in_waiting_files(
                journal_of(self._state, self._pipeline.spark_slot(self.name)), self._question, budget
            )
        return in_retry_store(self._state / STATE_NAME, self._question, budget)

    async def look_in_logs(self) -> None:
        """Searches the foreign logs: through a dispatcher, or directly."""
        if self._answers is not None:
            evidence, why = await self._event(self._answers, memory_only=True, logs=True)
            if evidence is None:
                self._missing.append(f"{self._answers.title}: {why}")
            else:
                self.evidence.add(evidence)
            return
        directory = self._asking.base / self._pipeline.foreign
        if not directory.is_dir():
            return
        logs = foreign_logs(self._asking.settings, self._asking.base, self.name, directory, self._state)
        budget = Budget(self._left_s, time.monotonic, self._asking.progress)
        self.evidence.add(await asyncio.to_thread(search_logs, logs, self._question, budget))

    async def trace(self, event_id: bytes, time_ns: int) -> Evidence | None:
        """Returns the registry's answer, obtained through a dispatcher; `None` if no dispatcher answers."""
        if self._answers is None:
            return None
        request = pb.EventRequest(event_id=event_id, timed=True, time_ns=time_ns, memory_only=True, registry=True)
        return (await self._call(self._answers, request))[0]

    async def _ask_dispatchers(self) -> bool:
        """Asks the dispatchers; the first that answers also searches their shared state. Returns True if none
        answers."""
        waiting = list(self._dispatchers)
        while waiting and self._answers is None:
            process = waiting.pop(0)
            evidence, why = await self._event(process)
            if evidence is None:
                self._missing.append(f"{process.title} at {process.address}: {why}")
                continue
            self._answers = process
            self.evidence.add(evidence)
        replies = await asyncio.gather(*(self._event(each, memory_only=True) for each in waiting))
        for process, (evidence, why) in zip(waiting, replies, strict=True):
            if evidence is None:
                self._missing.append(f"{process.title} at {process.address}: {why}")
            else:
                self.evidence.add(evidence)
        return self._answers is None

    async def _ask_joiners(self) -> set[str]:
        covered = set()
        replies = await asyncio.gather(*map(self._event, self._joiners))
        for process, (evidence, why) in zip(self._joiners, replies, strict=True):
            if evidence is None:
                self._silent[process.name] = f"{process.title} at {process.address}: {why}"
            else:
                covered.add(process.name)
                self.evidence.add(evidence)
        return covered

    async def _look_at_slots(self, covered: set[str], budget: Budget) -> None:
        """Searches the slots on this machine for which no process answered, including sealed copies."""
        place = output_of(self._asking.settings, self._asking.base, self.name)
        here = await asyncio.to_thread(_names_here, place)
        exports = set(RealDisk().names(self._state / EXPORTS_DIRECTORY))
        if here - covered - exports:
            without = covered | exports

            def search() -> Evidence:
                found = search_place(RealDisk(), place, self._question, budget, without=without)
                found.add(search_redo_logs(RealDisk(), place, self._question, budget, without=without))
                return found

            self.evidence.add(await asyncio.to_thread(search))
        slots = {slot.name for slot in self._slots if slot.datacentre == self.name and not slot.retired}
        for name in sorted((slots | self._silent.keys()) - covered - here):
            never_opened = name in self._silent and name not in slots and bool(self._slots)
            if not never_opened:
                why = self._silent.get(name, f"slot {name} has no joiner")
                self._missing.append(f"{why}; the slot is not on this machine, so its redo log could not be searched")

    async def _event(
        self, process: Process, *, memory_only: bool = False, logs: bool = False
    ) -> tuple[Evidence | None, str]:
        question, place = self._question, self._question.place
        request = pb.EventRequest(
            event_id=question.event_id,
            file="" if place is None else place.file,
            offset=0 if place is None else place.offset,
            timed=question.time_ns is not None,
            time_ns=question.time_ns or 0,
            memory_only=memory_only,
            logs=logs,
        )
        return await self._call(process, request)

    async def _call(self, process: Process, request: pb.EventRequest) -> tuple[Evidence | None, str]:
        """Returns the evidence, or `None` and the reason."""
        channel = open_channel(process.address or "", _OPTIONS, towards(self._asking.tls, process.identity))
        try:
            stub = EXPLAIN.stub(channel)
            part = ((PART, KINDS[process.kind].health),)
            reply = await stub.Event(request, timeout=max(self._left_s * SHARE, LEAST_S), metadata=part)
            return decode(reply.evidence), ""
        except grpc.aio.AioRpcError as error:
            return None, unreachable(error, tls=self._asking.tls is not None)
        except ValueError as error:
            return None, f"its answer cannot be read: {error}"
        finally:
            await channel.close(None)

    @property
    def _left_s(self) -> float:
        return max(self._until - time.monotonic(), 0.0)


def _names_here(place: OutputPlace) -> set[str]:
    """Returns the names of all writers that have a directory in this output."""
    disk = RealDisk()
    return {each.name for each in (*place.states(disk), *slots_of(disk, place))}
