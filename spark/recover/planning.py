"""Plans the repair of findings, one batch at a time. Pure.

The registry has the last word: it compares its entry (protocol rule 15). This module only chooses the request, and
refuses ids that a slot may still write, since repairing them would produce a second verdict.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from photon.idregistry.api import U8, Answer
from photon.spark.backfill.known import SLOT_PREFIX
from photon.spark.classes import Class


class RepairWay(enum.StrEnum):
    """How a finding is repaired, or why it is not. Explained in ``docs/verification.md``."""

    REOPEN = "reopen"  # requested of the registry by the operator's command
    REOPEN_BELOW = "reopen-below"  # the same below the boundary: only verified outputs show that no record exists
    REOPEN_RETIRED = "reopen-retired"  # the same for a retired slot: the registry checks that it is retired
    REPLAY = "replay"  # never registered: the dispatcher of the datacentre whose log holds it reads it again
    LISTED = "listed"  # already given up: the dispatchers search for it, but have not found it yet
    CHANGED = "changed"  # the registry's entry has changed since the export: nothing is done
    SLOT_DOWN = "slot-down"  # Its slot may still write it: start the slot, or retire it.
    # Unmatched, and its slot's records are not verified yet: try after the next verification
    NOT_CLEARED = "not-cleared"
    NOT_ASKED = "not-asked"  # unmatched, and the operator did not include these
    IN_DOUBT = "in-doubt"  # below the boundary and requested before, without an answer: the next verification decides
    NO_INPUT = "no-input"  # in no raw log, so there is nothing to dispatch
    # A backfill registered it: its record is in an output that the verification has not read
    BACKFILLED = "backfilled"
    # Unmatched, but the report does not confirm that this is the event's only record: needs review
    OTHER_RECORDS = "other-records"
    EARLIER = "earlier"  # given back by an earlier repair since the report
    NOT_LOOKED_AT = "not-looked-at"  # the verification could not read its slot's output
    WRITTEN = "written"  # its record is in an output file after all
    UNKNOWN = "unknown"  # The registry did not answer.
    MARK = "mark"  # a damaged range that readers must skip
    MARKED = "marked"  # a damaged range that readers skip
    # The state of its slot, or of a copy of it, is on another machine, where it must still be marked
    ELSEWHERE = "elsewhere"
    UNMARKED = "unmarked"  # cannot be marked: a record is readable there, or the file belongs to no slot


ASKED = (RepairWay.REOPEN, RepairWay.REOPEN_BELOW, RepairWay.REOPEN_RETIRED)  # ways that change the registry
DISPATCHED = (*ASKED, RepairWay.REPLAY)  # ways after which the event is joined once more
HELD = (RepairWay.NOT_LOOKED_AT, RepairWay.WRITTEN)  # reconsidered whenever the same report is repaired
# Ways that require action
ATTENTION = (
    RepairWay.SLOT_DOWN, RepairWay.NOT_CLEARED, RepairWay.IN_DOUBT, RepairWay.NO_INPUT, RepairWay.BACKFILLED,
    RepairWay.OTHER_RECORDS, RepairWay.UNKNOWN, RepairWay.LISTED, RepairWay.ELSEWHERE, RepairWay.UNMARKED, *HELD,
)  # fmt: skip


class EarlierRepairs(enum.Enum):
    """Whether earlier repairs have requested an id since the report's export."""

    NOT_ASKED = 0
    ASKED_YOUNG = 1  # its entry cannot have been collected since, so repeating the request compares
    ASKED_OLD = 2


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """One row of a report, reduced to the columns that its repair needs."""

    kind: Class
    digest: bytes
    event_id: bytes
    event_time_ns: int
    token: int | None  # None means that the registry had no entry at the export
    state: str | None
    generation: int
    datacentre: str | None
    log: str | None
    output_file: str | None
    output_offset: int | None
    slot: str | None  # the entry's owner, if the evidence names it
    written_token: int | None = None  # token of the record at ``output_offset``, if the evidence has it
    only_record: bool = False  # according to the evidence the event has no other record


def ways(
    findings: Sequence[ReportedProblem], answers: U8, asked: Sequence[EarlierRepairs], *, also_unmatched: bool
) -> list[RepairWay]:
    """Chooses how to repair each finding. ``answers``: the registry's answers to a look-up made now; ``asked``: what
    earlier repairs requested."""
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
        # Absent: the id was given up since. Below the boundary: collected since, so the exported entry counts.
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
    """True if the unmatched line is the event's only record. If it is not, giving up the id would duplicate the other
    record."""
    return finding.only_record and (finding.token is None or finding.token == finding.written_token)


def _unregistered(finding: ReportedProblem, answer: int) -> RepairWay:
    """Plans the repair of a finding without an entry in the export."""
    if answer == Answer.BELOW_BOUNDARY:
        return RepairWay.REOPEN_BELOW
    if answer != Answer.ABSENT or finding.kind is Class.PRIMARY_EXISTS:
        return RepairWay.CHANGED
    return RepairWay.REPLAY


def _again(way: RepairWay, answer: int, before: EarlierRepairs) -> RepairWay:
    """Plans the repair of an id that an earlier repair may have requested.

    Below the boundary the registry cannot compare, so a second request may give up an id that was written after the
    first.
    """
    if way not in ASKED or before is EarlierRepairs.NOT_ASKED:
        return way
    return RepairWay.IN_DOUBT if before is EarlierRepairs.ASKED_OLD or answer == Answer.BELOW_BOUNDARY else way


def young(event_time_ns: int, now_ns: int, retention_ns: int | None, margin_ns: int) -> bool:
    """True if the registry's boundary cannot pass this time within ``margin_ns``, so the entry still exists for
    comparison."""
    return retention_ns is None or event_time_ns > now_ns - retention_ns + margin_ns
