"""Turns evidence into the story of one event: what happened to it, when and where, and its verdict. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from photon.adapters.times import rfc3339_us
from photon.config.words import many
from photon.fleet.explain.evidence import ON_SPARK, Evidence, InLog, Record, Waiting
from photon.fleet.explain.question import Question, shown
from photon.idregistry.api import BATCH_BITS, Answer, incarnation_of
from photon.idregistry.core.scans import Traced
from photon.joiner.slot.place import DIRECTORY_OF

REGISTERED = ("joined", "unmatched", "filtered", "rejected")
STORY_VERSION = 1
DOWN = "whose joiner is down or does not answer"
_KINDS = {int(kind): name for kind, name in DIRECTORY_OF.items()}


@dataclass(frozen=True, slots=True)
class Heard:
    datacentre: str
    evidence: Evidence
    missing: tuple[str, ...] = ()  # its processes and directories that did not answer, each with the reason


@dataclass(frozen=True, slots=True)
class Step:
    """A step in an event's life. ``at``: RFC 3339; empty if unknown."""

    step: str  # logged, read, waiting, registering, registered, written or primary
    at: str
    datacentre: str
    who: str
    what: str
    file: str = ""
    offset: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Story:
    event_id: bytes
    verdict: str  # joined, unmatched, filtered, rejected, late, pending, unread, read, reopened, expired or unknown
    summary: str
    event_time_ns: int | None
    key: bytes | None
    steps: list[Step]
    contradictions: list[str]  # such as an id written twice, or a record whose id the registry lacks
    searched: list[dict[str, Any]]
    missing: list[dict[str, str]]
    join: str = ""  # join of this story; empty if no join has the event, or there is only one
    upstream: Sequence[Story] = ()  # stories of the events of other joins that this one is made of, nearest first

    @property
    def complete(self) -> bool:
        """True if every process answered and every search was completed."""
        return not self.missing and all(each.complete for each in self.upstream)

    def as_json(self) -> dict[str, Any]:
        """Returns the story as a document (described in docs/watching.md)."""
        text = shown(self.event_id)
        return {
            "photon_explain": STORY_VERSION,
            "event_id": text,
            "event_id_base64": None if text.encode() == self.event_id else b64encode(self.event_id).decode(),
            "verdict": self.verdict,
            "summary": self.summary,
            "event_time": None if self.event_time_ns is None else rfc3339_us(self.event_time_ns),
            "key": None if self.key is None else shown(self.key),
            "complete": self.complete,
            "steps": [
                {
                    "step": each.step,
                    "at": each.at or None,
                    "datacentre": each.datacentre or None,
                    "who": each.who or None,
                    "what": each.what,
                    "file": each.file or None,
                    "offset": each.offset,
                    **each.facts,
                }
                for each in self.steps
            ],
            "contradictions": self.contradictions,
            "searched": self.searched,
            "missing": self.missing,
            "join": self.join or None,
            "upstream": [each.as_json() for each in self.upstream],
        }


def tell(question: Question, heard: Sequence[Heard], traced: Traced | None, registry: str) -> Story:
    """Makes the story from the evidence. ``traced``: `None` if the registry gave no answer; ``registry``: the reason,
    or empty if the registry is not involved."""
    records = [(each.datacentre, record) for each in heard for record in each.evidence.records]
    waiting = [(each.datacentre, one) for each in heard for one in _once(each.evidence.waiting)]
    written = {(place, record.slot, record.token) for place, record in records}
    registering = [
        (each.datacentre, one)
        for each in heard
        for one in each.evidence.registering
        if (each.datacentre, one.slot, one.token) not in written  # redo logs keep written records for a while
    ]
    logged = [(each.datacentre, one) for each in heard for one in each.evidence.in_logs]
    named: list[Record | Waiting | InLog] = [one for each in heard for one in each.evidence.named()]
    verdict, summary = _verdict(records, registering, waiting, logged, traced)
    steps = [
        *(_logged(place, one) for place, one in logged),
        *_reads([*records, *registering], waiting),
        *(_waits(place, one) for place, one in waiting),
        *(_registering(place, one, traced) for place, one in registering),
        *([] if traced is None else _registered(traced)),
        *(step for place, record in records for step in _written(place, record)),
    ]
    missing = [{"where": each.datacentre, "why": why} for each in heard for why in each.missing]
    missing += [
        {"where": each.datacentre, "why": f"{one.what}: {one.why}"}
        for each in heard
        for one in each.evidence.searched
        if one.why
    ]
    if registry:
        missing.append({"where": "registry", "why": registry})
    return Story(
        next((one.event_id for one in named if one.event_id is not None), question.event_id),
        verdict,
        summary if not missing or verdict != "unknown" else f"{summary}; but not everything could be searched",
        next((one.event_time_ns for one in named if one.event_time_ns is not None), question.time_ns),
        next((one.key for one in named if one.key is not None), None),
        steps,
        _contradictions(records, traced),
        [
            {"datacentre": each.datacentre, "what": one.what, "files": one.files, "bytes": one.bytes}
            for each in heard
            for one in each.evidence.searched
        ],
        missing,
    )


def _once(waiting: Sequence[Waiting]) -> Iterator[Waiting]:
    """Yields each waiting event once: if it is in a dispatcher's memory and in its retry store, memory has more
    facts."""
    places = {(one.source_file, one.source_offset) for one in waiting if one.where == "memory"}
    for one in waiting:
        if one.where == "memory" or (one.source_file, one.source_offset) not in places:
            yield one


def _verdict(
    records: Sequence[tuple[str, Record]],
    registering: Sequence[tuple[str, Record]],
    waiting: Sequence[tuple[str, Waiting]],
    logged: Sequence[tuple[str, InLog]],
    traced: Traced | None,
) -> tuple[str, str]:
    registered = [(place, r) for place, r in records if r.kind in REGISTERED and r.token is not None]
    registered = registered or [(place, r) for place, r in records if r.kind in REGISTERED]
    if registered:
        place, record = registered[0]
        why = f": {record.reason}" if record.reason else ""
        return record.kind, f"{record.kind} in {place} by {record.slot}{why}"
    if traced is not None and traced.answer is Answer.PRESENT:
        kind = _KINDS.get(traced.kind, "registered")
        where = "its record is not in the outputs that were searched"
        if any(one.redo and _owns(one, traced) for _, one in registering):
            where = (
                f"its record is in the redo log of {traced.slot}, {DOWN}; the joiner writes it first when up again"
            )
        return kind, f"registered as {kind} by {traced.slot} of {traced.datacentre}; {where}"
    if records:
        place, record = records[0]
        why = f": {record.reason}" if record.reason else ""
        return record.kind, f"{record.kind} in {place}{why}"
    if registering:
        place, record = registering[0]
        when = f"; it is in the slot's redo log, {DOWN}" if record.redo else ""
        return (
            "pending",
            f"no verdict yet: {record.slot} of {place} writes it as {record.kind} if it registers its id{when}",
        )
    if waiting:
        place, one = waiting[0]
        tries = many(one.attempts, "try", "tries")
        last = f"; last: {one.last}" if one.last else ""
        return "pending", f"no verdict yet: in {place} it {one.state}, after {tries}{last}"
    if traced is not None and traced.answer is Answer.REOPENED:
        return (
            "reopened",
            f"given up by {traced.slot} of {traced.datacentre}; a dispatcher that finds it will join it again",
        )
    return _from_logs(logged, traced)


UNKNOWN = "no foreign event with this id or place was found (primary events have no story of their own)"


def _from_logs(logged: Sequence[tuple[str, InLog]], traced: Traced | None) -> tuple[str, str]:
    expired = traced is not None and traced.answer is Answer.BELOW_BOUNDARY
    old = "its time is before the registry's boundary: if it had a verdict, the registry has forgotten it"
    if not logged:
        return ("expired", f"no datacentre has it; {old}") if expired else ("unknown", UNKNOWN)
    place, one = logged[0]
    if one.reason is not None:
        return "unread" if one.read_to is None or one.offset >= one.read_to else "rejected", (
            f"it is in a foreign log of {place} and cannot be read: {one.reason}"
        )
    if one.read_to is None or one.offset >= one.read_to:
        return "unread", f"it is in a foreign log of {place}, in a part not yet read or not yet committed"
    if expired:
        return "expired", f"{place} has read it; {old}"
    return "read", f"{place} has read it, but no verdict was found; photon dispatcher skip may have left it out"


# -- steps -----------------------------------------------------------------------------------------------------------
def _logged(place: str, one: InLog) -> Step:
    if one.read_to is None:
        what = "is in a foreign log that the dispatcher has not started to read"
    elif one.offset >= one.read_to:
        what = f"is in a foreign log that is read up to byte {one.read_to:,}"
    else:
        what = "is in a foreign log, and was read"
    return Step("logged", "", place, "foreign log", what, one.file, one.offset, {"read_to": one.read_to})


def _reads(records: Sequence[tuple[str, Record]], waiting: Sequence[tuple[str, Waiting]]) -> Iterator[Step]:
    seen: set[tuple[str, str, int]] = set()
    for place, one in waiting:
        key = (place, one.source_file, one.source_offset)
        if key not in seen:
            seen.add(key)
            who = f"dispatcher {one.partition}".strip()
            at = rfc3339_us(one.first_read_ns)
            yield Step("read", at, place, who, "read for the first time", one.source_file, one.source_offset)
    for place, record in records:
        key = (place, record.source_file, record.source_offset)
        if key not in seen:
            seen.add(key)
            yield Step("read", "", place, "dispatcher", "read", record.source_file, record.source_offset)


def _waits(place: str, one: Waiting) -> Step:
    tries = "not tried yet" if not one.attempts else f"{many(one.attempts, 'try', 'tries')} so far"
    next_try = "" if one.next_try_ns is None else f", the next one at {rfc3339_us(one.next_try_ns)}"
    what = f"{one.state} ({one.where}); {tries}{next_try}"
    facts = {
        "state": one.state,
        "where": one.where,
        "attempts": one.attempts,
        "next_try": None if one.next_try_ns is None else rfc3339_us(one.next_try_ns),
        "reason": one.last or None,
    }
    if one.last:
        what += f"; last: {one.last}"
    who = "join on Spark" if one.where == ON_SPARK else f"dispatcher {one.partition}".strip()
    return Step("waiting", "", place, who, what, facts=facts)


def _owns(record: Record, traced: Traced) -> bool:
    return record.token == f"{traced.token:016x}"


def _registering(place: str, record: Record, traced: Traced | None) -> Step:
    logged = "logged, but the registry has not answered" if record.durable else "being logged"
    if record.redo:
        logged = f"in the redo log, {DOWN}"
        if traced is not None and traced.answer is Answer.PRESENT:
            owns = _owns(record, traced)
            fate = "written first when it is up again" if owns else "dropped then, because another token has the id"
            logged = f"{logged}; {fate}"
    what = f"would be written as {record.kind} under token {record.token}: {logged}"
    facts = {"kind": record.kind, "slot": record.slot, "token": record.token, "durable": record.durable}
    facts["redo"] = record.redo
    return Step("registering", "", place, record.slot, what, facts=facts)


def _registered(traced: Traced) -> Iterator[Step]:
    facts: dict[str, Any] = {
        "answer": traced.answer.name.lower(),
        "shard": traced.shard,
        "replica": traced.replica,
        "applied": traced.applied,
    }
    where = f"shard {traced.shard}"
    if traced.answer in (Answer.PRESENT, Answer.REOPENED):
        token = f"{traced.token:016x}"
        incarnation, batch = incarnation_of(traced.token), traced.token & ((1 << BATCH_BITS) - 1)
        kind = _KINDS.get(traced.kind, "?")
        facts |= {
            "token": token,
            "slot": traced.slot,
            "incarnation": incarnation,
            "batch": batch,
            "kind": kind,
            "cleared": traced.cleared,
            "generation": traced.generation,
        }
        state = "cleared" if traced.cleared else "owned"
        if traced.answer is Answer.REOPENED:
            state = f"given up (generation {traced.generation})"
        what = f"registered as {kind} under token {token} (slot {traced.slot}, incarnation {incarnation}); {state}"
    elif traced.answer is Answer.BELOW_BOUNDARY:
        what = "unknown, and older than the boundary"
    else:
        what = "not registered"
    yield Step("registered", "", traced.datacentre, f"registry, {where}", what, facts=facts)


def _written(place: str, record: Record) -> Iterator[Step]:
    joined = (
        record.kind if record.pairs is None else f"{record.kind} with all {record.pairs} primary events of its key"
    )
    said = [joined, "durable" if record.durable else "not durable yet"]
    if record.cleared is not None:
        said.append("cleared" if record.cleared else "not cleared yet")
    facts: dict[str, Any] = {
        "kind": record.kind,
        "slot": record.slot,
        "length": record.length,
        "durable": record.durable,
        "cleared": record.cleared,
        "token": record.token,
        "reason": record.reason,
    }
    if record.pairs is not None:
        facts["pairs"] = record.pairs
    if record.token is not None:
        facts["incarnation"] = incarnation_of(int(record.token, 16))
        said.append(f"token {record.token}")
    if record.reason:
        said.append(f"because {record.reason}")
    what = f"written as {', '.join(said)}"
    yield Step("written", record.at or "", place, record.slot, what, record.file, record.offset, facts)
    if record.primary_file is not None:
        what = "its primary event" if record.pairs in (None, 1) else "the first of its primary events"
        yield Step("primary", "", place, "primary log", what, record.primary_file, record.primary_offset)


def _contradictions(records: Sequence[tuple[str, Record]], traced: Traced | None) -> list[str]:
    found = []
    registered = [(place, r) for place, r in records if r.kind in REGISTERED and r.token is not None]
    by_id: dict[bytes | None, list[str]] = {}
    for place, record in registered:
        by_id.setdefault(record.event_id, []).append(f"{place} {record.file}:{record.offset}")
    found += [f"its record was written {len(at)} times: {', '.join(at)}" for at in by_id.values() if len(at) > 1]
    if traced is None or not registered:
        return found
    if traced.answer is Answer.ABSENT and any(record.durable for _, record in registered):
        found.append("a durable record was written, but the registry does not know its id")
    tokens = {record.token for _, record in registered}
    if traced.answer is Answer.PRESENT and f"{traced.token:016x}" not in tokens:
        found.append(f"the registry has token {traced.token:016x}, but its record has {', '.join(map(str, tokens))}")
    return found
