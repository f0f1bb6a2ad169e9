"""The meaning of each class of finding and how to react, in one line each; also the table in
``docs/verification.md``."""

from __future__ import annotations

from collections.abc import Collection

from photon.spark.classes import Class
from photon.spark.verify.causes import CommandLine

MEANING = {
    Class.CORRECT: "written once, equal to a fresh join",
    Class.LATE: "declared late by a dispatcher, and no other record exists",
    Class.PENDING: "waits for its primary event, or was not read yet",
    Class.LOST_UNREGISTERED: "no record, and not registered",
    Class.LOST_OWNED: "no record; owned by a slot that has not written it",
    Class.LOST_RETIRED: "no record; its slot was retired, or the id was given back and not registered since",
    Class.LOST_CLEARED: "no record, though the registry has it as written: output was deleted or damaged",
    Class.LOST_UNREADABLE: "an unreadable line that is in no rejected log",
    Class.DUPLICATED: "several records in one datacentre",
    Class.DUPLICATED_ACROSS: "records in more than one datacentre",
    Class.LOG_GONE: "a record whose source log is missing, so it cannot be compared",
    Class.INVENTED: "a record whose event is not in its named raw log",
    Class.WRONGLY_JOINED: "a record that differs from a fresh join",
    Class.SHOULD_BE_UNMATCHED: "joined, though no primary log has its key",
    Class.PRIMARY_EXISTS: "unmatched, though its primary event exists",
    Class.REGISTRY_MISSING: "written, but not registered, so it could be written again",
    Class.REGISTRY_DIFFERS: "written, but the registry has a different entry",
    Class.TORN: "a published line that is not an output record",
}
# A remedy for each problem. A repair command is named exactly if a repair dispatches events of the class.
TO_DO = {
    Class.LOST_UNREGISTERED: "photon spark recover: its dispatcher reads it again; check for a skip, or a log "
    "deleted before it was read",
    Class.LOST_OWNED: "start the slot's joiner, whose redo log has it; if its disk is gone: photon slot retire; a "
    "backfill's slot: run the backfill again",
    Class.LOST_RETIRED: "check that the dispatchers run and still have the log; photon spark recover dispatches it "
    "again",
    Class.LOST_CLEARED: "restore the output file from a copy; if there is none, photon spark recover dispatches it "
    "again",
    Class.LOST_UNREADABLE: "the rejected log was deleted, or the adapter changed; the raw log still has the line",
    Class.DUPLICATED: "bill the record marked registered in the evidence; keep the files and inform their readers",
    Class.DUPLICATED_ACROSS: "bill the record marked registered in the evidence; keep the files and inform "
    "their readers",
    Class.LOG_GONE: "restore the raw log and verify again; if deleted on purpose, the range is too old to verify",
    Class.INVENTED: "the output was modified: keep the file, check slot and token; or its log was rotated away "
    "under the same name",
    Class.WRONGLY_JOINED: "see the fields in the evidence and compare both texts: a log was rewritten, the "
    "adapter changed, or a disk failed",
    Class.SHOULD_BE_UNMATCHED: "if a primary log was rewritten, restore the original and verify again",
    Class.PRIMARY_EXISTS: "photon spark recover --also-unmatched gives it a second, joined line; if there are "
    "many, raise unmatched_after",
    Class.REGISTRY_MISSING: "after a restore: photon registry restore --register-again; else keep the export and run "
    "photon registry verify",
    Class.REGISTRY_DIFFERS: "keep the export and run photon registry verify; if the state differs, the event was "
    "given back though its record exists",
    Class.TORN: "see its cause: restore the output file from a copy; its lost events are listed as lost",
}
GOOD = (Class.CORRECT, Class.LATE, Class.PENDING)
PROBLEMS = tuple(kind for kind in Class if kind not in GOOD)
# Classes that ``photon spark recover --yes`` repairs
REPAIRED = (Class.LOST_UNREGISTERED, Class.LOST_RETIRED, Class.LOST_CLEARED, Class.TORN)
NextCommand = tuple[str, str]  # its purpose, and the command


def next_commands(problems: Collection[Class], *, unjudged: bool, commands: CommandLine) -> list[NextCommand]:
    """Returns the commands to run next, in order. ``problems``: classes of findings not yet accepted; ``unjudged``:
    True if the range was not judged."""
    found = []
    if problems:
        found.append(("list the findings", commands.problems()))
    if not set(REPAIRED).isdisjoint(problems):
        found.append(("show what a repair would do", commands.recover()))
        found.append(("repair", commands.recover("--yes")))
    if Class.PRIMARY_EXISTS in problems:
        how = "--also-unmatched --dry-run"
        found.append(("show which unmatched events would get a second, joined line", commands.recover(how)))
    if problems:
        found.append(("accept a reviewed finding", commands.acknowledge()))
    if unjudged:
        found.append(("see how far the dispatchers are", commands.status()))
    return [*found, ("verify again", commands.verify())] if problems or unjudged else []
