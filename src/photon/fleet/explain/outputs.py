"""Searches the output files of one slot, or of all writers in an output, for an event's record.

Reads plain and compressed files in chunks, searches for bytes that the event's line must contain, and parses only
lines that contain them. Also searches unpublished output; the record then says so.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.adapters.envelope_reader import EnvelopeError, read_line
from photon.config.clock import NS_PER_S
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.output_kinds import verdict_of
from photon.fleet.explain.evidence import FOUND_MAX, Evidence, Record, Searched
from photon.fleet.explain.question import CHUNK_BYTES, Budget, Question
from photon.idregistry.api import Kind
from photon.joiner.rows import Rows
from photon.joiner.slot.place import DIRECTORY_OF
from photon.joiner.slot.redo_log import RedoFrame, RedoLog
from photon.joiner.slot.slot import REDO_NAME
from photon.outputs import KINDS, OutputPlace, SlotOutput, decode, read_slot
from photon.outputs.cleared import Clearing, read_clearing
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.log.format import RETIRED_NAME, name_of
from photon.outputs.output_places import SLOTS_DIRECTORY
from photon.outputs.published import PublishedDamaged

# Kinds that a slot writes. Such a record is the event's verdict, so the slot has no other record of the event.
REGISTERED = ("joined", "unmatched", "filtered", "rejected")
# A file last written this long before the event's time cannot contain the event, even if clocks differ.
SLACK_NS = 3600 * NS_PER_S
LINE_BYTES_MAX = 64 << 20
_FILE = re.compile(r"(.+)-([0-9]{1,18})\.jsonl(\.gz)?")


@dataclass(frozen=True, slots=True)
class _File:
    kind: str
    number: int
    path: Path  # path of the plain file
    mtime_ns: int


def search_slot(
    disk: Disk, state: Path, output: Path, question: Question, budget: Budget, *, is_slot: bool
) -> Evidence:
    """Searches the slot in this state directory. Skips files older than the event if its time is known."""
    try:
        published = read_slot(disk, state)
        clearing = read_clearing(disk, state) if is_slot else None
    except (PublishedDamaged, OSError) as error:
        return Evidence(searched=[Searched(what=f"output of {state.name}", why=str(error))])
    files = _in_order(list(_files(published, published.output or output)), question.time_ns)
    found: list[Record] = []
    searched, total, why = 0, 0, ""
    for file in files:
        if budget.over:
            why = budget.why
            break
        try:
            for start, line in _lines(disk, file.path, question.needles(), budget):
                record = _record(published, clearing, file, start, line, question)
                if record is not None:
                    found.append(record)
                    if len(found) >= FOUND_MAX or (record.kind in REGISTERED and is_slot):
                        break
        except (PhotonError, OSError) as error:
            why = str(error)
            continue
        searched += 1
        total += _length(disk, file.path)
        if found:
            break
    why = why or (budget.why if budget.over and not found else "")
    what = f"output of {published.slot}"
    return Evidence(records=found, searched=[Searched(what=what, files=searched, bytes=total, why=why)])


def search_place(
    disk: Disk,
    place: OutputPlace,
    question: Question,
    budget: Budget,
    *,
    without: Collection[str] = (),
) -> Evidence:
    """Searches all writers in an output except ``without``, which have been searched already."""
    evidence = Evidence()
    for state in place.states(disk):
        if state.name in without:
            continue
        is_slot = place.is_slot(state) or state.parent in place.copies
        evidence.add(search_slot(disk, state, place.output, question, budget, is_slot=is_slot))
    return evidence


def _files(slot: SlotOutput, output: Path) -> Iterator[_File]:
    """Yields the slot's output files on disk; for a retired slot, only those that remain."""
    listed = {file.name for file in slot.files}
    for kind in KINDS:
        directory = output / kind
        if not directory.is_dir():
            continue
        seen: set[int] = set()
        for path in directory.glob(f"{_escaped(slot.slot)}-*.jsonl*"):
            match = _FILE.fullmatch(path.name)
            if match is None or match[1] != slot.slot or int(match[2]) in seen:
                continue
            number = int(match[2])
            name = name_of(kind, slot.slot, number)
            if slot.retired and name not in listed:
                continue
            seen.add(number)
            yield _File(kind, number, output / name, path.stat().st_mtime_ns)


def _escaped(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def _in_order(files: list[_File], time_ns: int | None) -> list[_File]:
    """Sorts the likeliest files first: those written soonest after the event; the newest first if its time is
    unknown."""
    if time_ns is None:
        return sorted(files, key=lambda file: -file.mtime_ns)
    return sorted((file for file in files if file.mtime_ns >= time_ns - SLACK_NS), key=lambda file: file.mtime_ns)


def _lines(disk: Disk, path: Path, needles: list[bytes], budget: Budget) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, line) of each complete line that contains a needle."""
    content = FileContent(disk, path, 0)
    rest, at = b"", 0
    while not budget.over:
        data = content.read(CHUNK_BYTES)
        if not data:
            return
        budget.spend(path.name, len(data))
        block = rest + data
        whole = block.rfind(b"\n") + 1
        if not whole and len(block) > LINE_BYTES_MAX:
            raise OutputMissing(path, f"no line end after byte {at}")
        yield from _hits(block[:whole], at, needles)
        rest, at = block[whole:], at + whole


def _hits(block: bytes, at: int, needles: list[bytes]) -> Iterator[tuple[int, bytes]]:
    begins: set[int] = set()
    for needle in needles:
        found = block.find(needle)
        while found >= 0:
            begin = block.rfind(b"\n", 0, found) + 1
            end = block.find(b"\n", found) + 1
            if begin not in begins:
                begins.add(begin)
                yield at + begin, block[begin:end]
            found = block.find(needle, end)


def _record(
    slot: SlotOutput, clearing: Clearing | None, file: _File, start: int, line: bytes, question: Question
) -> Record | None:
    """Decodes the record in a line. Returns `None` if it belongs to another event and the needle is only in its
    payload."""
    found = record_of(file.kind, slot.slot, line, question)
    if found is None:
        return None
    name = name_of(file.kind, slot.slot, file.number)
    known = {each.name: each for each in slot.files}
    published, end = known.get(name), start + len(line)
    durable = published is not None and end <= published.length
    cleared: bool | None = None
    if clearing is not None:
        final = published is not None and published.final
        cleared = final or (end <= clearing.files.get(name, 0) and name not in clearing.trouble)
    return msgspec.structs.replace(found, file=name, offset=start, durable=durable, cleared=cleared)


def record_of(kind: str, slot: str, line: bytes, question: Question) -> Record | None:
    """Decodes the event's record from a line; `None` if it belongs to another event. The caller sets its file and
    offset."""
    said = decode(line)
    if not question.means(said.event_id[0], said.source_file[0], said.source_offset[0]):
        return None
    time_ns = said.event_time_ns[0]
    with contextlib.suppress(EnvelopeError):
        ref = read_line(line.removesuffix(b"\n") + b"\n")
        time_ns = None if ref is None else ref.event_time_ns  # the registered time, which may differ
    return Record(
        kind=verdict_of(kind, said.reason[0]),
        slot=slot,
        file="",
        offset=0,
        length=len(line),
        durable=False,
        event_id=said.event_id[0],
        key=said.key[0],
        event_time_ns=time_ns,
        source_file=said.source_file[0] or "",
        source_offset=said.source_offset[0] or 0,
        primary_file=said.primary_file[0],
        primary_offset=said.primary_offset[0],
        pairs=said.pairs[0],
        reason=said.reason[0],
        at=said.written_at[0],
        token=said.token[0],
    )


def _length(disk: Disk, path: Path) -> int:
    """Returns the size on disk; 0 if the file has just been replaced."""
    for each in (path, path.with_name(f"{path.name}.gz")):
        if disk.exists(each):
            return disk.size(each)
    return 0


def slots_of(disk: Disk, place: OutputPlace) -> list[Path]:
    """Returns the state directories of the slots here, including those that failed before publishing anything."""
    slots = place.state / SLOTS_DIRECTORY
    return [slots / name for name in sorted(disk.names(slots)) if (slots / name).is_dir()]


def search_redo_logs(
    disk: Disk, place: OutputPlace, question: Question, budget: Budget, *, without: Collection[str] = ()
) -> Evidence:
    """Searches the redo logs of an output's own slots, not of copies. ``without``: slots whose joiners have
    answered."""
    evidence = Evidence()
    for state in slots_of(disk, place):
        if state.name not in without and not disk.exists(state / RETIRED_NAME):
            evidence.add(search_redo_log(disk, state, question, budget))
    return evidence


def search_redo_log(disk: Disk, state: Path, question: Question, budget: Budget) -> Evidence:
    """Searches the redo log of the slot in this state directory, if there is one."""
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
    # The last record for each token: at its start, a joiner copies records that it keeps into a new frame.
    newest = list({record.token: record for record in found}.values())[-FOUND_MAX:]
    return Evidence(registering=newest, searched=[searched])


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
