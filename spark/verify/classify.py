"""Derives an event id's findings from all rows about it. Pure; runs on executors, needs no pyspark.

Contents are compared as 64-bit hashes, which the job computes in the same way on both sides. Log names have no
rotation or compression suffixes, so lines keep their places when a log is renamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from photon.joiner.matching import NONE_BEFORE_REASON, NONE_WITHIN_REASON
from photon.joiner.verdicts import ABSENT_REASON
from photon.spark.classes import Class
from photon.spark.verify.narrow_rows import hash64

JOINED, FILTERED, UNMATCHED, REJECTED, LATE = "joined", "filtered", "unmatched", "rejected", "late"
# Expected verdict of a line that the adapter cannot read, so that its dispatcher rejects it itself
UNREADABLE = "unreadable"
OWNED, CLEARED, REOPENED = "owned", "cleared", "reopened"
PLACES_MAX = 8  # places named in the evidence of a finding
FOREIGN, PRIMARY = "foreign", "primary"
# Correct regardless of when they were written: a primary event that is not a pair may have come later.
ABSENT_REASONS = frozenset(hash64(why.encode()) for why in (ABSENT_REASON, NONE_WITHIN_REASON, NONE_BEFORE_REASON))


Place = tuple[str | None, int | None]  # log and offset


class JoinedPair(NamedTuple):
    """An event and one of its primary events, as hashes of the payloads and the place of the primary record."""

    foreign: int | None
    primary: int | None
    primary_log: str | None
    primary_offset: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """A record of a raw foreign log, and its result in a fresh join."""

    datacentre: str
    log: str
    offset: int
    time_ns: int | None
    key: bytes | None
    # Joined, filtered, rejected, unmatched (no primary log of its datacentre has its key, or the two are no pair) or
    # unreadable
    kind: str
    # Hash of the payload as in a joined record. For an unmatched one, of its text or its payload: the form that the
    # join does not write now.
    foreign: int | None
    # Hash of the record's text, as the other logs have it. For an unmatched one with ``unmatched = "inline"``, of its
    # payload.
    record: int | None
    primary: int | None
    primary_log: str | None
    primary_offset: int | None
    unread: bool = False  # its dispatcher has not read this far
    outside: bool = False  # outside the verified range: not joined, only shows that the event exists
    pairs: Sequence[JoinedPair] | None = None  # with ``match = "all"``: all its pairs, in order
    reason: int | None = None  # hash of the reason for unmatched or filtered


@dataclass(frozen=True, slots=True)
class Record:
    """A line of an output log. ``kind``: its verdict; ``token`` is ``None`` for a dispatcher's line."""

    datacentre: str
    kind: str
    file: str
    offset: int
    token: str | None
    time_ns: int | None
    key: bytes | None
    foreign: int | None  # hash of the payload, or of the record's text
    primary: int | None
    log: str | None
    log_offset: int | None
    primary_log: str | None
    primary_offset: int | None
    fresh: bool = False  # written after the registry's export began, which therefore lacks it
    # An operator gave this unmatched line up, so that the event may be joined: another record replaces it
    given_up: bool = False
    pair: int | None = None  # with ``match = "all"``: its number among ``pairs``
    pairs: int | None = None
    # All pairs of an event in one datacentre: they count as one record, represented by the first (``sets_of``).
    members: Sequence[Record] = ()
    reason: int | None = None  # hash of its stated reason
    added: bool = False  # True if it has unexpected members
    unnamed: bool = False  # it is in a file that no manifest names


@dataclass(frozen=True, slots=True)
class Entry:
    """The registry's entry for the id."""

    token: str
    state: str
    kind: str
    time_ns: int
    datacentre: str | None
    slot: str | None
    retired: bool
    generation: int = 0


LogName = tuple[str, str, str]  # side (foreign or primary), datacentre, and name without rotation suffix


@dataclass(frozen=True, slots=True)
class KnownLogs:
    """The raw logs that exist, and the ones that are known to have existed."""

    standing: frozenset[LogName]
    gone: Mapping[LogName, int]  # byte up to which missing logs of this name were read
    damaged: Mapping[LogName, int]  # byte from which on a log of this name cannot be read

    def lacks(self, side: str, datacentre: str, log: str | None, offset: int | None) -> bool:
        """True if this place in a log cannot be read."""
        if log is None or offset is None:
            return False
        name = (side, datacentre, log)
        return (
            name not in self.standing or offset < self.gone.get(name, 0) or offset >= self.damaged.get(name, 1 << 62)
        )


@dataclass(frozen=True, slots=True)
class KnownOfId:
    """All rows about one id."""

    lines: Sequence[Line] = ()
    records: Sequence[Record] = ()
    entries: Sequence[Entry] = ()
    waiting: bool = False  # it is in a dispatcher's retry store
    collected: bool = False  # its time is below the registry's boundary: so a missing entry proves nothing
    registry: bool = True  # there is an export of the registry
    lines_all: int = 0
    records_all: int = 0
    logs: KnownLogs | None = None  # None means that every log named in a record exists

    def lacks(self, side: str, record: Record) -> bool:
        """True if the record's source on this side cannot be read."""
        at = (record.log, record.log_offset) if side == FOREIGN else _primary(record)
        return self.logs is not None and self.logs.lacks(side, record.datacentre, *at)


@dataclass(frozen=True, slots=True)
class ClassifiedId:
    """A finding about an id: a row of the report."""

    kind: Class
    evidence: Mapping[str, object]
    line: Line | None = None
    record: Record | None = None
    entry: Entry | None = None


def without_copies(records: Sequence[Record]) -> list[Record]:
    """Drops copies in unlisted files: all if a listed file has the record, otherwise all but one."""
    kept = [record for record in records if not record.unnamed]
    seen = {(record.kind == LATE, record.pair) for record in kept if not record.given_up}
    for record in records:
        if record.unnamed and (name := (record.kind == LATE, record.pair)) not in seen:
            seen.add(name)
            kept.append(record)
    return kept


def sets_of(records: Sequence[Record]) -> list[Record]:
    """Merges the pairs of an event in one datacentre's output into one record."""
    others = [record for record in records if record.pairs is None]
    sets: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda each: (each.file, each.offset)):
        if record.pairs is not None:
            sets.setdefault(record.datacentre, []).append(record)
    return others + [replace(members[0], members=members) for members in sets.values()]


def classify(known: KnownOfId) -> list[ClassifiedId]:
    """Returns all findings about an id, or the single finding that it is correct; none if the id occurs nowhere."""
    entry = known.entries[0] if known.entries else None
    all_ = [record for record in known.records if record.kind != LATE]
    verdicts = [record for record in all_ if not record.given_up] or all_
    if not known.lines:
        return _without_lines(known, entry)
    if any(line.kind == UNREADABLE for line in known.lines):
        return _unreadable(known, verdicts)
    line = known.lines[0]
    if not verdicts:
        return [_without_record(known, line, entry)]
    findings = _several(known, verdicts, line, entry)
    findings += [found for record in verdicts if (found := _contents(known, record, entry)) is not None]
    if known.registry:
        findings += _registry(known, verdicts, line, entry)
    return findings or [ClassifiedId(Class.CORRECT, {}, line, verdicts[0], entry)]


# -- no record, no line ----------------------------------------------------------------------------------------
def _without_lines(known: KnownOfId, entry: Entry | None) -> list[ClassifiedId]:
    if known.records:
        return [_without_line(known, record, entry) for record in known.records]
    if entry is None:
        return []
    return [ClassifiedId(_lost(entry), {"why": "neither a raw log nor an output has it"} | _of_entry(entry), None,
    None,
                    entry)]  # fmt: skip


def _without_line(known: KnownOfId, record: Record, entry: Entry | None) -> ClassifiedId:
    if known.lacks(FOREIGN, record):
        return ClassifiedId(Class.LOG_GONE, _gone(record, FOREIGN, elsewhere=False), None, record, entry)
    return ClassifiedId(Class.INVENTED, {"why": "no raw log has this event"}, None, record, entry)


def _gone(record: Record, side: str, *, elsewhere: bool) -> dict[str, object]:
    log = record.log if side == FOREIGN else record.primary_log
    return {"why": "its named log is missing", "side": side, "log": log, "elsewhere": elsewhere}


def _without_record(known: KnownOfId, line: Line, entry: Entry | None) -> ClassifiedId:
    late = next((record for record in known.records if record.kind == LATE), None)
    if entry is not None and entry.state in (OWNED, CLEARED):
        return _registered(known, line, late, entry)
    if known.waiting:
        return ClassifiedId(Class.PENDING, {"why": "in a retry store"}, line, late, entry)
    if late is None and all(each.unread for each in known.lines):
        return ClassifiedId(Class.PENDING, {"why": "not yet read by any dispatcher"}, line, None, entry)
    if late is not None and entry is None:
        return ClassifiedId(Class.LATE, {}, line, late, None)
    if entry is not None:
        return _registered(known, line, late, entry)
    evidence: dict[str, object] = {"expected": line.kind, "datacentres": sorted({x.datacentre for x in known.lines})}
    if known.collected:
        evidence["why"] = "below the registry's boundary: it may have been registered before"
    return ClassifiedId(Class.LOST_UNREGISTERED, evidence, line, None, None)


def _registered(known: KnownOfId, line: Line, late: Record | None, entry: Entry) -> ClassifiedId:
    """Makes the finding for a registered event without a record, with the line of the owner's datacentre, if any."""
    own = next((each for each in known.lines if each.datacentre == entry.datacentre), line)
    return ClassifiedId(_lost(entry), _of_entry(entry), own, late, entry)


def _lost(entry: Entry) -> Class:
    if entry.state == CLEARED:
        return Class.LOST_CLEARED
    if entry.retired or entry.state == REOPENED:
        return Class.LOST_RETIRED
    return Class.LOST_OWNED


def _of_entry(entry: Entry) -> dict[str, object]:
    return {"state": entry.state, "kind": entry.kind, "slot": entry.slot, "owner": entry.datacentre}


# -- records that no joiner made -------------------------------------------------------------------------------
def _unreadable(known: KnownOfId, verdicts: Sequence[Record]) -> list[ClassifiedId]:
    """Returns findings about one place of an unreadable line. Rotated logs may share one name, each with its own
    rejection."""
    line = next(line for line in known.lines if line.kind == UNREADABLE)
    lines, records = known.lines_all or len(known.lines), known.records_all or len(verdicts)
    if records > lines:
        return [ClassifiedId(Class.DUPLICATED, {"records": _places(verdicts), "lines": lines}, line, verdicts[-1])]
    unread = sum(1 for each in known.lines if each.unread)
    if records + unread < lines:
        return [ClassifiedId(Class.LOST_UNREADABLE, {"why": "no rejected log has it"}, line)]
    if records < lines:
        return [ClassifiedId(Class.PENDING, {"why": "its dispatcher has not read that far"}, line)]
    wrong = [record for record in verdicts if record.kind != REJECTED or record.foreign != line.record]
    if wrong and len(known.lines) == 1:
        fields = ["record"] if wrong[0].kind == REJECTED else ["kind"]
        return [ClassifiedId(Class.WRONGLY_JOINED, {"fields": fields}, line, wrong[0])]
    return [ClassifiedId(Class.CORRECT, {}, line, verdicts[0])]


# -- several records -------------------------------------------------------------------------------------------
def _several(known: KnownOfId, verdicts: Sequence[Record], line: Line, entry: Entry | None) -> list[ClassifiedId]:
    given_up = sum(1 for record in known.records if record.given_up) if len(verdicts) < len(known.records) else 0
    twice = [pair for record in verdicts for pair in _repeated(record.members)]
    records = max(known.records_all - given_up, len(verdicts))
    if records < 2 and not twice:
        return []
    by_datacentre = Counter(record.datacentre for record in verdicts)
    kind = Class.DUPLICATED if len(by_datacentre) == 1 else Class.DUPLICATED_ACROSS
    evidence: dict[str, object] = {"records": _places(verdicts), "count": records}
    if twice:
        evidence["pairs"] = _places(twice)
    registered = [record for record in verdicts if entry is not None and record.token == entry.token]
    if registered:
        evidence["registered"] = _places(registered[:1])[0]
    extra = next((record for record in verdicts if not registered or record is not registered[0]), verdicts[0])
    return [ClassifiedId(kind, evidence, line, twice[0] if twice else extra, entry)]


def _repeated(members: Sequence[Record]) -> list[Record]:
    """Returns the pairs that repeat an earlier one. A place alone does not identify a pair, because rotated logs
    share a name and offsets."""
    seen = Counter[tuple[int | None, Place]]()
    names = [(each.pair, _primary(each)) for each in members]
    return [each for each, name in zip(members, names, strict=True) if (seen.update([name]), seen[name] > 1)[1]]


def _primary(record: Record | JoinedPair) -> Place:
    return record.primary_log, record.primary_offset


def _places(records: Sequence[Record]) -> list[str]:
    named = [f"{each.datacentre}/{each.file}:{each.offset} {each.token or '-'}" for each in records[:PLACES_MAX]]
    return named if len(records) <= PLACES_MAX else [*named, "…"]


# -- contents --------------------------------------------------------------------------------------------------
def _contents(known: KnownOfId, record: Record, entry: Entry | None) -> ClassifiedId | None:
    lines = known.lines
    own = [line for line in lines if line.datacentre == record.datacentre]
    at_place = [line for line in own if (line.log, line.offset) == (record.log, record.log_offset)]
    if not at_place:
        nearest = min(own or lines, key=lambda each: len(_wrong(lines, each, record)[1]))
        differs = [name for name in _wrong(lines, nearest, record)[1] if name != "primary_source"]
        if known.lacks(FOREIGN, record) and (not differs or nearest.kind != record.kind):
            return ClassifiedId(Class.LOG_GONE, _gone(record, FOREIGN, elsewhere=True), nearest, record, entry)
        where = "" if own else f"no raw log of {record.datacentre} has this event"
        evidence = {"fields": ["source", *differing(nearest, record)]} | ({"why": where} if where else {})
        return ClassifiedId(Class.WRONGLY_JOINED, evidence, nearest, record, entry)
    if any(line.outside for line in at_place):
        return None  # the record of a line with the same id and a time in another range
    line = min(at_place, key=lambda each: len(_wrong(lines, each, record)[1]))
    kind, fields = _wrong(lines, line, record)
    if kind is Class.CORRECT:
        return None
    alone = {"key", "event_time_ns", "members"}  # members of a record that do not depend on its primary event
    if record.kind in (JOINED, FILTERED) and known.lacks(PRIMARY, record) and alone.isdisjoint(fields):
        others = [each for each in lines if each.datacentre != record.datacentre]
        elsewhere = any((each.kind, each.primary) == (record.kind, record.primary) for each in others)
        return ClassifiedId(Class.LOG_GONE, _gone(record, PRIMARY, elsewhere=elsewhere), line, record, entry)
    records = max(known.records_all, sum(1 for each in known.records if each.kind != LATE))
    said: dict[str, object] = {"fields": fields, "expected": line.kind, "written": record.kind, "records": records}
    if record.members:
        said |= _about_set(line, record)
    return ClassifiedId(kind, said, line, record, entry)


def _wrong(lines: Sequence[Line], line: Line, record: Record) -> tuple[Class, list[str]]:
    fields = differing(line, record)
    if record.kind == UNMATCHED:
        if any(each.kind != UNMATCHED for each in lines):
            return Class.PRIMARY_EXISTS, ["kind", *fields]
    elif line.kind == UNMATCHED:
        return Class.SHOULD_BE_UNMATCHED, ["kind", *fields]
    elif line.kind != record.kind:
        return Class.WRONGLY_JOINED, ["kind", *fields]
    return (Class.WRONGLY_JOINED if fields else Class.CORRECT), fields


def differing(line: Line, record: Record) -> list[str]:
    """Returns the names of members in which the record differs from the line."""
    if record.members:
        return _differing_set(line, record)
    fields = ["members"] if record.added else []
    if record.key != line.key:
        fields.append("key")
    if record.time_ns != line.time_ns:
        fields.append("event_time_ns")
    joined = record.kind == JOINED
    told = (line.foreign,) if joined else (line.record, *((line.foreign,) if record.kind == UNMATCHED else ()))
    if record.foreign not in told:
        fields.append("foreign" if joined else "record")
    if joined and line.kind == JOINED and record.primary != line.primary:
        fields.append("primary")
    has_place = record.kind in (JOINED, FILTERED) or record.primary_log is not None
    place = (record.primary_log, record.primary_offset)
    if (
        has_place
        and (line.kind != UNMATCHED or line.primary_log is not None)
        and place != (line.primary_log, line.primary_offset)
    ):
        fields.append("primary_source")
    if joined and line.pairs is not None:
        fields.append("pairs")
    if not _gives_reason(line, record):
        fields.append("reason")
    return fields


def _gives_reason(line: Line, record: Record) -> bool:
    if line.kind != record.kind or record.kind not in (UNMATCHED, FILTERED) or record.reason == line.reason:
        return True
    return record.kind == UNMATCHED and record.primary_log is None and record.reason in ABSENT_REASONS


def _differing_set(line: Line, record: Record) -> list[str]:
    """Like ``differing``, for a set of pairs. Includes ``pairs`` unless the record has each pair of the line once, in
    its place."""
    wanted = line.pairs or ()
    fields: dict[str, None] = {}
    for member in record.members:
        # A superfluous pair is compared only in the members that all pairs of the event share.
        own = [each for each in wanted if _primary(each) == _primary(member)]
        own = own or [JoinedPair(member.foreign, member.primary, *_primary(member))]
        alone = [replace(line, **each._asdict(), pairs=None) for each in own]
        fewest: list[str] = min((differing(each, replace(member, members=())) for each in alone), key=len)
        fields |= dict.fromkeys(fewest)
        if (member.log, member.log_offset) != (line.log, line.offset):
            fields["source"] = None
    numbered = {(at, len(wanted), _primary(each)) for at, each in enumerate(wanted, 1)}
    if numbered != {(each.pair, each.pairs, _primary(each)) for each in record.members}:
        fields["pairs"] = None
    return list(fields)


def _about_set(line: Line, record: Record) -> dict[str, object]:
    """Returns missing and superfluous pairs, as places of primary events; ``half``: the set is incomplete by its own
    count."""
    wanted = Counter(map(_primary, line.pairs or ()))
    there = Counter(place for _, place in {(each.pair, _primary(each)): None for each in record.members})
    pairs = {each.pairs or 0 for each in record.members}
    numbers = sorted({each.pair or 0 for each in record.members})
    return {
        "missing": [f"{log}:{offset}" for log, offset in wanted - there][:PLACES_MAX],
        "extra": [f"{log}:{offset}" for log, offset in there - wanted][:PLACES_MAX],
        "half": len(pairs) > 1 or numbers != list(range(1, max(pairs) + 1)),
    }


# -- the registry ----------------------------------------------------------------------------------------------
def _registry(known: KnownOfId, verdicts: Sequence[Record], line: Line, entry: Entry | None) -> list[ClassifiedId]:
    first = verdicts[0]
    if any(record.fresh for record in verdicts):
        return []
    if entry is None:
        return [] if known.collected else [ClassifiedId(Class.REGISTRY_MISSING, {}, line, first)]
    if len(known.entries) > 1:
        evidence = {"fields": ["shard"], "tokens": [each.token for each in known.entries[:PLACES_MAX]]}
        return [ClassifiedId(Class.REGISTRY_DIFFERS, evidence, line, first, entry)]
    record = next((each for each in verdicts if each.token == entry.token), first)
    # An id keeps the time of its first registration; a line that claims it after reopening may have another.
    one_of_its_times = entry.generation > 0 or entry.time_ns in {each.time_ns for each in known.lines}
    pairs = {
        "token": (_token(record, entry), entry.token),
        "kind": (record.kind, entry.kind),
        "event_time_ns": (entry.time_ns if one_of_its_times else line.time_ns, entry.time_ns),
        "datacentre": (record.datacentre, entry.datacentre if entry.datacentre is not None else record.datacentre),
        "state": (entry.state == REOPENED, False),
    }
    fields = [name for name, (one, other) in pairs.items() if one != other]
    if not fields:
        return []
    return [ClassifiedId(Class.REGISTRY_DIFFERS, {"fields": fields} | _of_entry(entry), line, record, entry)]


def _token(record: Record, entry: Entry) -> str | None:
    """Returns the first token of the record or set that differs from the entry's token. Returns the entry's token if
    there is none, or if the set has a repeated pair and the entry's token."""
    tokens = [each.token for each in record.members or (record,)]
    if _repeated(record.members) and entry.token in tokens:
        return entry.token
    return next((token for token in tokens if token != entry.token), entry.token)
