"""Searches the redo log of a slot that no joiner answers for: what it has registered, or would, and not written yet.

Read-only, without the slot's lock: a joiner that is starting there meanwhile is not held up, and what it takes away
under the search is told as not searched.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.fleet.explain.budget import Budget
from photon.fleet.explain.evidence import FOUND_MAX, Evidence, Record, Searched
from photon.fleet.explain.outputs import record_of
from photon.fleet.explain.question import Question
from photon.idregistry.api import Kind
from photon.joiner.rows import Rows
from photon.joiner.slot.place import DIRECTORY_OF
from photon.joiner.slot.redo_log import RedoFrame, RedoLog
from photon.joiner.slot.slot import REDO_NAME
from photon.outputs import OutputPlace
from photon.outputs.output_places import SLOTS_DIRECTORY
from photon.outputs.published import RETIRED_NAME


def slots_of(disk: Disk, place: OutputPlace) -> list[Path]:
    """State directories of the slots here, of those too that went down before they had published anything."""
    slots = place.state / SLOTS_DIRECTORY
    return [slots / name for name in sorted(disk.names(slots)) if (slots / name).is_dir()]


def search_redo_logs(
    disk: Disk, place: OutputPlace, question: Question, budget: Budget, *, without: Collection[str] = ()
) -> Evidence:
    """Of all slots of an output that are no copies. ``without``: those whose joiners have answered."""
    evidence = Evidence()
    for state in slots_of(disk, place):
        if state.name not in without and not disk.exists(state / RETIRED_NAME):
            evidence.add(search_redo_log(disk, state, question, budget))
    return evidence


def search_redo_log(disk: Disk, state: Path, question: Question, budget: Budget) -> Evidence:
    """Of the slot in this state directory; nothing where it has no redo log."""
    directory, slot = state / REDO_NAME, state.name
    if not directory.is_dir():
        return Evidence()
    found: list[Record] = []
    segments, total, why = 0, 0, ""
    try:
        for frames in RedoLog(disk, directory).by_segment():
            size = sum(len(part) for frame in frames for part in frame.body)
            budget.spend(f"redo log of {slot}", size)
            segments, total = segments + 1, total + size
            for frame in frames:
                found += _in_frame(frame, slot, question)
            if budget.over:
                why = budget.why
                break
    except (PhotonError, OSError, ValueError) as error:
        why = str(error)
    searched = Searched(what=f"redo log of {slot}", files=segments, bytes=total, why=why)
    return Evidence(registering=_newest(found), searched=[searched])


def _in_frame(frame: RedoFrame, slot: str, question: Question) -> list[Record]:
    body = b"".join(frame.body)
    needles = question.needles()
    if not any(needle in body for needle in needles):
        return []
    rows = Rows.decode(frame.tokens, body)
    found = []
    for token, kind, line in zip(rows.tokens.tolist(), rows.kinds.tolist(), rows.lines, strict=True):
        if any(needle in line for needle in needles):
            record = record_of(DIRECTORY_OF[Kind(kind)], slot, line, question)
            if record is not None:
                said = f"{token:016x}"
                found.append(msgspec.structs.replace(record, durable=True, token=said, redo=True))
    return found


def _newest(found: list[Record]) -> list[Record]:
    """One for each token, the last one: a start carries what is kept into a new frame."""
    return list({record.token: record for record in found}.values())[-FOUND_MAX:]
