"""What is to be done about a finding: pure, a batch of columns at a time.

The registry's table decides in the end, by compare (protocol rule 15); this only chooses what is asked, and refuses
what would make a second verdict: ids that a slot may still write.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from photon.idregistry.api import U8, Answer
from photon.spark.backfill.batch_names import SLOT_PREFIX
from photon.spark.classes import Class


class RepairWay(enum.StrEnum):
    """One word each; ``docs/verification.md`` says what they mean."""

    REOPEN = "reopen"
    """Asked of the registry by the operator's word."""
    REOPEN_BELOW = "reopen-below"
    """The same, of an id below the boundary: only the outputs that were verified say that it is nowhere."""
    REOPEN_RETIRED = "reopen-retired"
    """Asked of the registry as of a retired slot: it checks that the slot is."""
    REPLAY = "replay"
    """Never registered: the dispatcher of the datacentre whose log holds it reads it again."""
    LISTED = "listed"
    """Given up already: the dispatchers look for it, and have not found it yet."""
    CHANGED = "changed"
    """The registry has something else than it had at the export: nothing is done."""
    SLOT_DOWN = "slot-down"
    """Its slot may still write it: start the slot, or retire it."""
    NOT_CLEARED = "not-cleared"
    """Unmatched, and its slot's records have not been verified yet: try after the next verification."""
    NOT_ASKED = "not-asked"
    """Unmatched, and the operator did not ask for these."""
    IN_DOUBT = "in-doubt"
    """Below the boundary and asked for before, with no answer: the next verification says."""
    NO_INPUT = "no-input"
    """No raw log has it: there is nothing to dispatch."""
    BACKFILLED = "backfilled"
    """A backfill registered it: its record stands in an output that the verification has not read."""
    OTHER_RECORDS = "other-records"
    """Unmatched, and the report does not say that this is the event's only record: a person must look."""
    EARLIER = "earlier"
    """An earlier repair gave it back since the report."""
    NOT_LOOKED_AT = "not-looked-at"
    """The verification cannot have looked at its slot's output."""
    WRITTEN = "written"
    """Its record stands in an output file after all."""
    UNKNOWN = "unknown"
    """The registry did not answer."""
    MARK = "mark"
    """A damaged range: readers are to pass over it."""
    MARKED = "marked"
    """They do."""
    ELSEWHERE = "elsewhere"
    """The state of its slot, or of a copy of it, is on another machine, where it is still to be marked."""
    UNMARKED = "unmarked"
    """It cannot be marked: a record can be read there, or it is no file of a slot."""


ASKED = (RepairWay.REOPEN, RepairWay.REOPEN_BELOW, RepairWay.REOPEN_RETIRED)
"""Ways that change the registry."""
DISPATCHED = (*ASKED, RepairWay.REPLAY)
"""Ways after which the event is joined once more."""
HELD = (RepairWay.NOT_LOOKED_AT, RepairWay.WRITTEN)
"""Looked at again whenever the same report is repaired."""
ATTENTION = (
    RepairWay.SLOT_DOWN, RepairWay.NOT_CLEARED, RepairWay.IN_DOUBT, RepairWay.NO_INPUT, RepairWay.BACKFILLED,
    RepairWay.OTHER_RECORDS, RepairWay.UNKNOWN, RepairWay.LISTED, RepairWay.ELSEWHERE, RepairWay.UNMARKED, *HELD,
)  # fmt: skip
"""Ways that leave somebody something to do."""


class EarlierRepairs(enum.Enum):
    """What repairs have asked for an id since the report's export."""

    NOT_ASKED = 0
    ASKED_YOUNG = 1
    """Its entry cannot have been collected since: asking again compares."""
    ASKED_OLD = 2


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """One row of a report, as far as its repair needs it."""

    kind: Class
    digest: bytes
    event_id: bytes
    event_time_ns: int
    token: int | None
    """None: the registry had no entry at the export."""
    state: str | None
    generation: int
    datacentre: str | None
    log: str | None
    output_file: str | None
    output_offset: int | None
    slot: str | None
    """Whose the entry was, where the evidence says so."""
    written_token: int | None = None
    """Token of the record at ``output_offset``, if the evidence says so."""
    only_record: bool = False
    """The event has no other record, says the evidence."""


def ways(
    findings: Sequence[ReportedProblem], answers: U8, asked: Sequence[EarlierRepairs], *, also_unmatched: bool
) -> list[RepairWay]:
    """What to do about each. ``answers``: the registry's to a look-up of now; ``asked``: what a repair did before."""
    return [
        _again(_way(finding, answer, also_unmatched=also_unmatched), answer, before)
        for finding, answer, before in zip(findings, answers.tolist(), asked, strict=True)
    ]


def _way(finding: ReportedProblem, answer: int, *, also_unmatched: bool) -> RepairWay:
    if finding.slot is not None and finding.slot.startswith(SLOT_PREFIX):
        return RepairWay.BACKFILLED
    if finding.kind is Class.LOST_OWNED:
        return RepairWay.SLOT_DOWN
    if finding.kind is Class.PRIMARY_EXISTS and not also_unmatched:
        return RepairWay.NOT_ASKED
    if finding.log is None or finding.datacentre is None:
        return RepairWay.NO_INPUT
    if finding.kind is Class.PRIMARY_EXISTS and not _is_the_verdict(finding):
        return RepairWay.OTHER_RECORDS
    if answer == Answer.UNKNOWN:
        return RepairWay.UNKNOWN
    if finding.state == "reopened":
        return RepairWay.LISTED if answer == Answer.ABSENT else RepairWay.CHANGED
    if finding.state == "cleared":
        # Absent: somebody gave it up since. Below the boundary: collected since, it counts as exported.
        return {Answer.ABSENT: RepairWay.CHANGED, Answer.BELOW_BOUNDARY: RepairWay.REOPEN_BELOW}.get(
            Answer(answer), RepairWay.REOPEN
        )
    if finding.state == "owned":
        if finding.kind is Class.PRIMARY_EXISTS:
            return RepairWay.NOT_CLEARED
        if finding.kind is Class.LOST_RETIRED:
            return RepairWay.REOPEN_RETIRED if answer == Answer.PRESENT else RepairWay.CHANGED
        return RepairWay.SLOT_DOWN
    return _unregistered(finding, answer)


def _is_the_verdict(finding: ReportedProblem) -> bool:
    """Whether the unmatched line is all that the event has: else giving the id up would double the other record."""
    return finding.only_record and (finding.token is None or finding.token == finding.written_token)


def _unregistered(finding: ReportedProblem, answer: int) -> RepairWay:
    """The plan where the export had no entry."""
    if answer == Answer.BELOW_BOUNDARY:
        return RepairWay.REOPEN_BELOW
    if answer != Answer.ABSENT or finding.kind is Class.PRIMARY_EXISTS:
        return RepairWay.CHANGED
    return RepairWay.REPLAY


def _again(way: RepairWay, answer: int, before: EarlierRepairs) -> RepairWay:
    """Below the boundary nothing compares: who asks twice may give up an id that was written in between."""
    if way not in ASKED or before is EarlierRepairs.NOT_ASKED:
        return way
    return RepairWay.IN_DOUBT if before is EarlierRepairs.ASKED_OLD or answer == Answer.BELOW_BOUNDARY else way


def young(event_time_ns: int, now_ns: int, retention_ns: int | None, margin_ns: int) -> bool:
    """Whether the boundary cannot pass it within ``margin_ns``: then its entry is there to be compared with."""
    return retention_ns is None or event_time_ns > now_ns - retention_ns + margin_ns
