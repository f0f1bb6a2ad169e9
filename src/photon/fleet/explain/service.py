"""``photon.v1.Explain``: a dispatcher or joiner answers read-only questions about an event, one at a time.

Searches memory on the event loop, and files in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import msgspec

from photon.config.disk import RealDisk
from photon.config.rpc import Context, Service, abort, seconds_left
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.engine import DispatcherEngine
from photon.fleet.explain import explain_pb2 as pb
from photon.fleet.explain.dispatchers import ForeignLogs, in_memory, in_retry_store, in_waiting_files, search_logs
from photon.fleet.explain.evidence import FOUND_MAX, Evidence, Record, encode
from photon.fleet.explain.outputs import record_of, search_place, search_redo_logs, search_slot
from photon.fleet.explain.question import ID_BYTES_MAX, Budget, Place, Question
from photon.idregistry.api import Kind
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import Traced
from photon.joiner.core import OpenRecord
from photon.joiner.process import HasSlot
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs import OutputPlace
from photon.outputs.output_places import EXPORTS_DIRECTORY
from photon.spark.pipeline.journal import journal_of

SEARCH_S = 60.0  # time limit for one question, even if the caller would wait longer
MARGIN_S = 0.5  # the answer is sent this long before the caller's deadline
EXPLAIN = Service(pb.DESCRIPTOR, "Explain")
Trace = Callable[[bytes, int], Awaitable[Traced | Refusal]]  # (event id, event time in ns) -> the registry's answer


# (question, its scope as in explain.proto, time limit in seconds) -> evidence
Explainer = Callable[[Question, pb.EventRequest, float], Awaitable[Evidence]]


class ExplainService:
    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._busy = asyncio.Lock()

    async def Event(self, request: pb.EventRequest, context: Context) -> pb.EventReply:  # noqa: N802
        if not 0 < len(request.event_id) <= ID_BYTES_MAX or len(request.file) > ID_BYTES_MAX or request.offset < 0:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"an event id has 1 to {ID_BYTES_MAX} bytes")
        seconds = max(seconds_left(context, default=SEARCH_S, margin=MARGIN_S, most=SEARCH_S), 0.1)
        if self._busy.locked():
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "another question is being answered; ask again")
        question = Question(request.event_id, Place(request.file, request.offset) if request.file else None)
        async with self._busy:
            return pb.EventReply(evidence=encode(await self._explainer(question, request, seconds)))


def of_dispatcher(
    engine: DispatcherEngine,
    state: Path,
    output: Path,
    logs: ForeignLogs,
    partition: str,
    trace: Trace,
) -> Explainer:
    """Returns the explainer of a dispatcher. ``state``: the pipeline's state directory. ``partition``: the
    dispatcher's name."""

    def files(question: Question, budget: Budget) -> Evidence:
        evidence = in_retry_store(state / STATE_NAME, question, budget)
        evidence.add(exported(state, output, question, budget))
        return evidence

    return _of_reader(lambda question: in_memory(engine.core, question, partition), files, logs, trace)


def of_join_on_spark(state: Path, output: Path, slot: str, logs: ForeignLogs, trace: Trace) -> Explainer:
    """Returns the explainer of a join on Spark, which also searches its own slot. ``state``: the pipeline's state
    directory."""

    def files(question: Question, budget: Budget) -> Evidence:
        evidence = in_waiting_files(journal_of(state, slot), question, budget)
        evidence.add(exported(state, output, question, budget, also=slot))
        return evidence

    return _of_reader(lambda question: Evidence(), files, logs, trace)


def _of_reader(
    memory: Callable[[Question], Evidence],
    files: Callable[[Question, Budget], Evidence],
    logs: ForeignLogs,
    trace: Trace,
) -> Explainer:

    async def explain(question: Question, scope: pb.EventRequest, seconds: float) -> Evidence:
        evidence = memory(question)
        budget = Budget(seconds, time.monotonic)
        if not scope.memory_only:
            evidence.add(await asyncio.to_thread(files, question, budget))
        if scope.logs:
            evidence.add(await asyncio.to_thread(search_logs, logs, question, budget))
        if scope.registry:
            await _trace(evidence, question, scope, trace)
        return evidence

    return explain


async def _trace(evidence: Evidence, question: Question, scope: pb.EventRequest, trace: Trace) -> None:
    time_ns = scope.time_ns if scope.timed else evidence.time_ns()
    if time_ns is None:
        return
    found = await trace(evidence.event_id() or question.event_id, time_ns)
    if isinstance(found, Refusal):
        evidence.registry_problem = found.reason or found.status.name
    else:
        evidence.traced = found


def exported(state: Path, output: Path, question: Question, budget: Budget, also: str = "") -> Evidence:
    """Searches the output that the pipeline's dispatchers write: rejected and late lines. ``also``: a slot to search,
    too."""
    disk, place = RealDisk(), OutputPlace(output, state)
    slots = {each.name for each in place.states(disk) if each.parent != state / EXPORTS_DIRECTORY} - {also}
    return search_place(disk, place, question, budget, without=slots)


def of_joiner(joiner: HasSlot) -> Explainer:

    async def explain(question: Question, scope: pb.EventRequest, seconds: float) -> Evidence:
        engine = joiner.opened
        if engine is None:
            return Evidence()
        paths, budget = engine.directories, Budget(seconds, time.monotonic)
        opened = await asyncio.to_thread(registering, engine.slot, engine.open_records(), question)
        found = await asyncio.to_thread(
            search_slot, RealDisk(), paths.state, paths.output, question, budget, is_slot=True
        )
        found.registering = [] if found.records else opened  # the record may have been written meanwhile
        return found

    return explain


def registering(slot: str, records: Sequence[OpenRecord], question: Question) -> list[Record]:
    """Finds the event's records among those that a joiner is about to register or write."""
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
    evidence = in_retry_store(place.state / STATE_NAME, question, budget)
    evidence.add(search_place(RealDisk(), place, question, budget))
    evidence.add(search_redo_logs(RealDisk(), place, question, budget))
    return evidence
