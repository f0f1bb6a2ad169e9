"""Invariants of the world at rest."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from photon.dispatcher.ledger import Verdict, total_of
from photon.dispatcher.replay import requests
from photon.idregistry.api import Kind
from photon.idregistry.core.id_bucket import OWNED, REOPENED
from photon.idregistry.core.id_table import Entry
from photon.joiner.api import ForeignEvent
from photon.joiner.slot.place import DIRECTORY_OF
from photon.joiner.verdicts import tag_of
from tests.simulation.world import backfill
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.process import DispatcherProcess, JoinerProcess
from tests.simulation.world.retiring import LostSlot, listed_ids, sealed_files
from tests.simulation.world.truth import Event, Fate, time_in

if TYPE_CHECKING:
    from tests.simulation.world.world import Place, World

_KIND_OF = {directory: kind for kind, directory in DIRECTORY_OF.items()}
_OPEN = (Verdict.JOINED, Verdict.FILTERED, Verdict.UNMATCHED, Verdict.REJECTED, Verdict.ELSEWHERE, Verdict.DUPLICATE)
_VERDICTS = (Verdict.JOINED, Verdict.FILTERED, Verdict.UNMATCHED, Verdict.REJECTED)


@dataclass(frozen=True)
class Record:
    """A line of an output of some joiner."""

    kind: Kind
    where: str
    datacentre: str
    fields: dict[str, Any]

    @property
    def event_id(self) -> bytes:
        return str(self.fields.get("event_id")).encode()


@dataclass(frozen=True)
class Owner:
    """The registry's entry for an id."""

    entry: Entry
    datacentre: str
    time_ns: int  # the event time with which it was registered


# -- rest ------------------------------------------------------------------------------------------------------------
def unrest(world: World) -> str:
    """Work not done yet; empty at rest."""
    if world.loop.now < world.truth.last_arrival:
        return "logs still grow"
    for name in world.kinds:
        if name in world.away:
            continue
        process = world.running(name)
        if process is None or process.paused:
            return f"{name} does not run"
        if isinstance(process, DispatcherProcess) and (why := _dispatcher_unrest(world, process)):
            return f"{name}: {why}"
        if isinstance(process, JoinerProcess):
            if not process.serving or process.engine is None:
                return f"{name} does not serve"
            if not process.engine.shell.core.empty:
                return f"{name}: {process.engine.shell.core.open_rows} rows open"
    if lost := [each.slot for each in world.lost if not each.retired]:
        return f"{lost} are not retired"
    if reopened := [event_id for event_id, owner in owners(world).items() if owner and owner.entry.state == REOPENED]:
        return f"{len(reopened)} ids are reopened: {reopened[:5]}"
    owned = _owned(world)
    return f"{len(owned)} ids are owned: {owned[:5]}" if owned else ""


def _dispatcher_unrest(world: World, process: DispatcherProcess) -> str:
    if process.engine is None:
        return "not running"
    status = process.engine.status()
    if status.pending or status.stored or status.in_flight or not status.caught_up:
        return f"pending {status.pending}, stored {status.stored}, in flight {status.in_flight}"
    positions = {p.identity: p.offset for p in process.engine._state.positions()}
    if (replay := requests.current(process.engine._state.database)) is not None:
        return f"replay {replay.number} is not done"
    behind = [log.name for log in process.logs if log.lines and positions.get(log.name, 0) != log.end]
    return f"{behind} not read to the end" if behind else ""


def owners(world: World) -> dict[bytes, Owner | None]:
    """Each event's entry, from the leading replicas. One answer for all questions of one moment."""
    machines = world.shard_machines()
    moment = [(machine, machine.applied) for machine in machines]
    if world.owners is not None and world.owners[0] == moment:
        return world.owners[1]
    found: dict[bytes, Owner | None] = dict.fromkeys(world.truth.events)
    for machine in machines:
        for event_id, event in world.truth.events.items():
            digest = world.digester.digest(event_id)
            entry = machine._table.get(digest)
            if entry is not None:
                seen = machine.look_up(digest, np.array([event.time_ns], np.int64))
                found[event_id] = Owner(
                    entry, seen.datacentres[int(seen.owner_datacentres[0])], int(seen.owner_times[0])
                )
    world.owners = moment, found
    return found


# -- outputs ---------------------------------------------------------------------------------------------------------
def records(world: World) -> Iterator[Record]:
    """All lines of all joiners' outputs. For a lost slot, only those promised to its readers: whole lines (it may
    have been killed in the middle of a write, or a power cut have left a tail that no sync had reached) of ids that
    it still owns; the others were listed to them when it was retired."""
    for place in world.datacentres:
        for joiner in place.joiners:
            yield from _records_on(place.disks[joiner], joiner, place.name)
    for kind, name, line in backfill.lines(world):
        yield _record(kind, f"backfill/{name}", backfill.DATACENTRE, line, _fields(line))
    if not world.lost:
        return
    entries = {event_id: owner.entry for event_id, owner in owners(world).items() if owner}
    for lost in world.lost:
        if lost.sealed is not None:
            yield from _records_in_copy(lost)
            continue
        for record in _records_on(lost.disk, lost.joiner, lost.place.name, only_whole=True):
            entry = entries.get(record.event_id)
            if entry is None or f"{entry.token:016x}" == record.fields.get("token"):
                yield record


def _records_in_copy(lost: LostSlot) -> Iterator[Record]:
    """Readers of a lost slot whose copy was sealed continue in that copy."""
    kinds = {directory: kind for kind, directory in DIRECTORY_OF.items()}
    for name, data in sealed_files(lost).items():
        for line in data.splitlines():
            kind = kinds[name.partition("/")[0]]
            yield _record(kind, f"the sealed copy of {name}", lost.place.name, line, _fields(line))


def _record(kind: Kind, where: str, datacentre: str, line: bytes, fields: dict[str, Any] | None) -> Record:
    """``kind``: the log's. With ``unmatched = "inline"`` an unmatched event's record is among the joined ones."""
    fields = fields or {"event_id": f"damaged: {line[:200]!r}"}
    verdict = Kind.UNMATCHED if kind is Kind.JOINED and "reason" in fields else kind
    if ("primary" in fields) != (kind is Kind.JOINED):
        fields = {"event_id": f"in the wrong log: {line[:200]!r}"}
    return Record(verdict, where, datacentre, fields)


def output_files(disk: FaultyDisk, joiner: str, directory: str) -> Iterator[tuple[str, bytes]]:
    """Name and lines of each file of one kind; for a file being compressed, the plain one."""
    root = Path(f"/{joiner}/out/{directory}")
    names = list(disk.names(root))
    for name in names:
        if name.endswith(".jsonl.gz") and name[:-3] not in names:
            yield name, gzip.decompress(disk.read(root / name))
        elif name.endswith(".jsonl"):
            yield name, disk.read(root / name)


def _records_on(disk: FaultyDisk, joiner: str, datacentre: str, *, only_whole: bool = False) -> Iterator[Record]:
    for kind, directory in DIRECTORY_OF.items():
        for name, data in output_files(disk, joiner, directory):
            if only_whole:
                data = data[: data.rfind(b"\n") + 1]
            together: list[Any] = []
            for line in data.splitlines():
                fields = _fields(line)
                if only_whole and fields is None:
                    break
                if fields is not None and "pairs" in fields:
                    together.append(fields["primary_source"])
                    if fields["pair"] != len(together):
                        fields = {"event_id": f"in part: {line[:200]!r}"}
                    elif fields["pair"] < fields["pairs"]:
                        continue
                    fields, together = {**fields, "set": together}, []
                where = f"{joiner}/{directory}/{name}"
                yield _record(kind, where, datacentre, line, fields)


def _fields(line: bytes) -> dict[str, Any] | None:
    """A line's members; ``None`` means that it is damaged, which shows up as an invented event."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found


def twice(world: World) -> list[str]:
    """Events with more than one record."""
    places: dict[bytes, list[str]] = {}
    for record in records(world):
        places.setdefault(record.event_id, []).append(f"{record.kind.name.lower()} in {record.where}")
    return [f"twice: {event_id!r} is {where}" for event_id, where in places.items() if len(where) > 1]


def unlisted(world: World) -> list[str]:
    """Records of lost slots whose ids others own by now, and that the list of their retirement does not name."""
    entries = {event_id: owner.entry for event_id, owner in owners(world).items() if owner}
    found = []
    for lost in world.lost:
        listed = listed_ids(world, lost.slot)
        for record in _records_on(lost.disk, lost.joiner, lost.place.name, only_whole=True):
            entry = entries.get(record.event_id)
            given_up = entry is not None and f"{entry.token:016x}" != record.fields.get("token")
            if given_up and world.digester.digest(record.event_id) not in listed:
                found.append(f"not listed: {record.event_id!r} was in {record.where} and given up")
    return found


def owned_without_record(world: World) -> list[str]:
    """Ids that some token owns but no output contains."""
    written = {record.event_id for record in records(world)}
    missing = [event_id for event_id in _owned(world) if event_id not in written]
    return [f"lost: {len(missing)} ids are owned and have no record: {missing[:5]}"] if missing else []


def _owned(world: World) -> list[bytes]:
    return [event_id for event_id, owner in owners(world).items() if owner and owner.entry.state == OWNED]


def findings(world: World) -> list[str]:
    """Broken promises; the first is the one to report."""
    found = twice(world) + unlisted(world)
    by_id = {record.event_id: record for record in records(world)}
    found += [f"invented: {event_id!r}" for event_id in by_id if event_id not in world.truth.events]
    for event_id, event in world.truth.events.items():
        record = by_id.get(event_id)
        if record is None:
            found.append(f"lost: {event_id!r} has no record")
        elif world.variant.sets:
            found += _wrong_set(world, event, record)
        elif record.kind not in event.fate.value and not _cut_short(world, event, record):
            found.append(f"wrong verdict: {event_id!r} is {record.kind.name}, not {event.fate.name}")
        elif wrong := _wrong_contents(world, event, record):
            found.append(f"wrong contents of {event_id!r}: {wrong} in {record.fields}")
    for place in world.datacentres:
        found += _unreadable(world, place)
        found += _ledger(world, place)
    generations = {event_id: owner.entry.generation for event_id, owner in owners(world).items() if owner}
    found += world.watermarks.findings(generations)
    return found + [f"alarm: {each}" for each in world.alarms]


def _wrong_set(world: World, event: Event, record: Record) -> list[str]:
    """An event is joined with all primary events that came while it was waited for, except filtered ones."""
    logs = world.truth.primary
    lines = [(logs[log].name, logs[log].lines[at]) for log, at in world.truth.primaries_of(event)]
    whats = [line.record.split(b" ")[1] for _, line in lines]
    kinds: tuple[Kind, ...] = event.fate.value
    if b"rejected" not in whats and len(whats) > whats.count(b"filtered"):
        kinds = (Kind.JOINED, *((Kind.UNMATCHED,) if event.fate is Fate.RACED else ()))
    hasty = any(moment >= event_at(world, event) for moment in world.leapt_ahead)
    if record.kind not in kinds:
        return [] if hasty else [f"wrong verdict: {event.event_id!r} is {record.kind.name}, not {event.fate.name}"]
    if record.kind is not Kind.JOINED:
        return []
    wanted = [
        {"file": name, "offset": line.offset}
        for (name, line), what in zip(lines, whats, strict=True)
        if what != b"filtered"
    ]
    has = record.fields["set"]
    some = [each for each in wanted if each in has]
    if has == wanted or (has == some and (hasty or event.fate is Fate.RACED)):
        return []
    return [f"wrong set: {event.event_id!r} has {has}, of {wanted}"]


def event_at(world: World, event: Event) -> float:
    """When its first line was in any copy."""
    logs = {log.name: log for log in world.truth.foreign}
    return min(times[logs[name].index_of[at]] for name, at in event.lines for times in logs[name].arrivals.values())


def _cut_short(world: World, event: Event, record: Record) -> bool:
    """Its patience ended when all clocks of a datacentre leapt ahead together, while it waited there."""
    if record.kind is not Kind.UNMATCHED:
        return False
    return any(moment >= event_at(world, event) for moment in world.leapt_ahead)


def _wrong_contents(world: World, event: Event, record: Record) -> str:
    fields = record.fields
    source = fields["source"]
    line = event.lines.get((source["file"], source["offset"]))
    shown = fields["foreign"] if "primary" in fields else fields["record"]
    if line is None:
        return "the foreign record"
    line = world.truth.in_copy(source["file"], record.datacentre, line)
    if shown.encode() != line:
        return "the foreign record"
    if (fields["key"].encode(), fields["event_time_ns"]) != (event.key, time_in(line)):
        return "key or time"
    unpaired = event.fate is Fate.UNPAIRED and not _cut_short(world, event, record)
    if record.kind is Kind.UNMATCHED and not unpaired:
        return "a primary event" if "primary_source" in fields and event.fate is not Fate.UNPAIRED else ""
    if unpaired and "within.before" not in fields.get("reason", ""):
        return "the reason"
    assert event.primary is not None
    name, offset, primary = event.primary
    if fields.get("primary_source") != {"file": name, "offset": offset}:
        return "the primary event's place"
    return "the primary event" if record.kind is Kind.JOINED and fields["primary"].encode() != primary else ""


def _unreadable(world: World, place: Place) -> list[str]:
    """Unreadable lines are exported once in each datacentre, and once more where its dispatcher has forgotten them:
    published lines stay."""
    seen: Counter[tuple[str, int]] = Counter()
    for name in place.images:
        disk, root = place.disks[name], Path(f"/{name}/out/rejected")
        for file in disk.names(root):
            for line in disk.read(root / file).splitlines():
                source = json.loads(line)["source"]
                seen[source["file"], source["offset"]] += 1
    wipes = max(images.wipes for images in place.images.values())
    if seen.keys() == set(world.truth.malformed) and max(seen.values(), default=1) <= 1 + wipes:
        return []
    return [f"unreadable lines of {place.name}: exported {dict(seen)}, there are {world.truth.malformed}"]


def _ledger(world: World, place: Place) -> list[str]:
    """The ledger's numbers follow from the owner of each id and the owning line.

    A line of a reopened id was counted once, by whoever owned the id then; which verdict is left open.
    """
    processes: list[Any] = [world.processes[name] for name in place.images]
    counts: Counter[str] = Counter()
    for process in processes:
        line = process.engine._state.ledger().total
        counts.update(line.as_dict() | line.apart())
    total = total_of(counts)
    expected: Counter[Verdict] = Counter({Verdict.REJECTED: len(world.truth.malformed)})
    lines = len(world.truth.malformed)
    open_lines = retimed = 0
    files = {log.name: log.file for log in world.truth.foreign}
    for event_id, owner in owners(world).items():
        event = world.truth.events[event_id]
        lines += len(event.lines)
        if owner is None:
            continue
        if owner.entry.generation:
            open_lines += len(event.lines)
            continue
        for (name, offset), written in event.lines.items():
            record = world.truth.in_copy(name, place.name, written)
            line = ForeignEvent(event_id, b"", event.time_ns, event.key, record, files[name], offset, 0)
            same, own = owner.entry.tag == tag_of(line), owner.datacentre == place.name
            retimed += time_in(record) != owner.time_ns
            if not same and (own or world.identical_copies):
                expected[Verdict.DUPLICATE] += 1
            elif not own:
                expected[Verdict.ELSEWHERE] += 1
            else:
                expected[_VERDICTS[owner.entry.kind - 1]] += 1
    if not open_lines and total.retimed != retimed:
        return [f"ledger of {place.name}: {total.retimed} retimed, expected {retimed}"]
    actual = {verdict: count for verdict, count in total.verdicts.items() if count}
    for verdict, count in actual.items():
        more = count - expected[verdict]
        if verdict in _OPEN and 0 < more <= open_lines:
            expected[verdict] += more
            open_lines -= more
    if total.read != lines or total.pending or open_lines or actual != {v: n for v, n in expected.items() if n}:
        return [f"ledger of {place.name}: {total}, expected {lines} lines: {dict(expected)}"]
    return []
