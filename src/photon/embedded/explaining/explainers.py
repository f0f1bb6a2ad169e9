"""What a dispatcher's and a joiner's process say of an event: their memory on the event loop, files in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from photon.config.disk import RealDisk
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.engine import DispatcherEngine
from photon.embedded.explaining.budget import Budget
from photon.embedded.explaining.dispatchers import in_memory, in_retry_store
from photon.embedded.explaining.evidence import FOUND_MAX, Evidence, Record
from photon.embedded.explaining.logs import ForeignLogs, search_logs
from photon.embedded.explaining.outputs import record_of, search_place, search_slot
from photon.embedded.explaining.question import Question
from photon.embedded.explaining.redo import search_redo_logs
from photon.embedded.explaining.service import Explainer, Scope
from photon.idregistry.api import Kind
from photon.idregistry.outcomes import Refusal
from photon.idregistry.tracing import Traced
from photon.joiner.core import OpenRecord
from photon.joiner.process import HasSlot
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs import OutputPlace
from photon.outputs.output_places import EXPORTS_DIRECTORY

Trace = Callable[[bytes, int], Awaitable[Traced | Refusal]]
"""(event id, event time in ns) -> what the registry has."""


def of_dispatcher(
    engine: Callable[[], DispatcherEngine],
    state: Path,
    output: Path,
    logs: ForeignLogs,
    worker: Callable[[], str],
    trace: Trace,
) -> Explainer:
    """``engine``: the present one. ``state``: the pipeline's state directory."""

    async def explain(question: Question, scope: Scope) -> Evidence:
        evidence = in_memory(engine().core, question, worker())
        budget = Budget(scope.seconds, time.monotonic)
        if not scope.memory_only:
            evidence.add(await asyncio.to_thread(in_retry_store, state / STATE_NAME, question, budget))
            evidence.add(await asyncio.to_thread(exported, state, output, question, budget, scope.time_ns))
        if scope.logs:
            evidence.add(await asyncio.to_thread(search_logs, logs, question, budget, time_ns=scope.time_ns))
        if scope.registry:
            await _trace(evidence, question, scope, trace)
        return evidence

    return explain


async def _trace(evidence: Evidence, question: Question, scope: Scope, trace: Trace) -> None:
    time_ns = scope.time_ns if scope.time_ns is not None else evidence.time_ns()
    if time_ns is None:
        return
    found = await trace(evidence.event_id() or question.event_id, time_ns)
    if isinstance(found, Refusal):
        evidence.registry_problem = found.reason or found.status.name
    else:
        evidence.traced = found


def exported(state: Path, output: Path, question: Question, budget: Budget, time_ns: int | None) -> Evidence:
    """What the pipeline's dispatchers have written themselves: rejected and late lines."""
    disk, place = RealDisk(), OutputPlace(output, state)
    slots = {each.name for each in place.states(disk) if each.parent != state / EXPORTS_DIRECTORY}
    return search_place(disk, place, question, budget, time_ns=time_ns, without=slots)


def of_joiner(joiner: HasSlot) -> Explainer:
    """Of its own slot."""

    async def explain(question: Question, scope: Scope) -> Evidence:
        engine = joiner.opened
        if engine is None:
            return Evidence()
        paths, budget = engine.directories, Budget(scope.seconds, time.monotonic)
        opened = await asyncio.to_thread(registering, engine.slot, engine.open_records(), question)
        found = await asyncio.to_thread(
            search_slot, RealDisk(), paths.state, paths.output, question, budget, is_slot=True, time_ns=scope.time_ns
        )
        found.registering = [] if found.records else opened  # it may have been written meanwhile
        return found

    return explain


def registering(slot: str, records: Sequence[OpenRecord], question: Question) -> list[Record]:
    """Those of a joiner's would-be records that are the event's."""
    needles, found = question.needles(), []
    for each in records:
        if not any(needle in each.line for needle in needles):
            continue
        record = record_of(DIRECTORY_OF[Kind(each.kind)], slot, each.line, question)
        if record is not None:
            token = f"{each.token:016x}"
            found.append(msgspec.structs.replace(record, durable=each.durable, token=token))
            if len(found) >= FOUND_MAX:
                break
    return found


def look(place: OutputPlace, question: Question, budget: Budget) -> Evidence:
    """What the files of one pipeline have."""
    time_ns = question.time_ns
    evidence = in_retry_store(place.state / STATE_NAME, question, budget)
    evidence.add(search_place(RealDisk(), place, question, budget, time_ns=time_ns))
    evidence.add(search_redo_logs(RealDisk(), place, question, budget))
    return evidence
