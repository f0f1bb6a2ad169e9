"""What each finding means and what to do about it, in one line each; ``docs/verification.md`` says more."""

from __future__ import annotations

from photon.spark.classes import REPAIRABLE, Class

MEANING = {
    Class.CORRECT: "written once, as a fresh join has it",
    Class.LATE: "a dispatcher called it late, and no other record exists",
    Class.PENDING: "waits for its primary event, or was not read yet",
    Class.LOST_UNREGISTERED: "no record, and the registry does not know it",
    Class.LOST_OWNED: "no record; owned by a slot that has not written it",
    Class.LOST_RETIRED: "no record; its slot was retired, or it was given back and nobody has taken it",
    Class.LOST_CLEARED: "no record, though the registry has it as written: output was deleted or damaged",
    Class.LOST_UNREADABLE: "a line that no adapter reads, and that no rejected log has",
    Class.DUPLICATED: "several records in one datacentre",
    Class.DUPLICATED_ACROSS: "records in more than one datacentre",
    Class.LOG_GONE: "a record whose source log is not there: it cannot be compared",
    Class.INVENTED: "a record whose event is not in the raw log that it names",
    Class.WRONGLY_JOINED: "a record that differs from a fresh join",
    Class.SHOULD_BE_UNMATCHED: "joined, though no primary log has its key",
    Class.PRIMARY_EXISTS: "called unmatched, though its primary event is there",
    Class.REGISTRY_MISSING: "written, but the registry does not know it: it could be written again",
    Class.REGISTRY_DIFFERS: "written, but the registry's entry is another one",
    Class.TORN: "a published line that is no output record",
}
TO_DO = {
    Class.LOST_UNREGISTERED: "photon spark recover dispatches it again; look for a dispatcher that skipped",
    Class.LOST_OWNED: "start the slot's joiner, its redo writes it; if its disk is gone: photon slot retire",
    Class.LOST_RETIRED: "see that the dispatchers run; photon spark recover dispatches it again",
    Class.LOST_CLEARED: "put the output file back from a copy; else photon spark recover",
    Class.LOST_UNREADABLE: "look whether the rejected log was deleted; the raw log still has the line",
    Class.DUPLICATED: "take the record away that the registry does not name; tell who reads the output",
    Class.DUPLICATED_ACROSS: "take the record away that the registry does not name; tell who reads the output",
    Class.LOG_GONE: "put the raw log back and verify again; deleted on purpose: the range is too old to verify",
    Class.INVENTED: "keep the file, and find who wrote it; was its log rotated away under the same name?",
    Class.WRONGLY_JOINED: "the evidence names the fields: was the adapter changed, a log rewritten, a disk bad?",
    Class.SHOULD_BE_UNMATCHED: "was a primary log rewritten? Put the right one back, and verify again",
    Class.PRIMARY_EXISTS: "photon spark recover dispatches it again; raise join.unmatched_after if there are many",
    Class.REGISTRY_MISSING: "was a registry restored? photon registry register-again registers what is written",
    Class.REGISTRY_DIFFERS: "photon registry verify; keep the export, and compare the replicas",
    Class.TORN: "put the output file back from a copy; events that it lost are listed as lost",
}
"""Of problems."""
GOOD = (Class.CORRECT, Class.LATE, Class.PENDING)
PROBLEMS = tuple(kind for kind in Class if kind not in GOOD)


def repairable(kind: Class) -> bool:
    """Whether ``photon spark recover`` does something about it."""
    return kind in REPAIRABLE
