"""At a start, checks that state and output are of the same age, finds logged lines in the output, and repairs the
ends of output files (rules 5 to 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from photon.adapters.envelope_reader import lacking_pairs
from photon.idregistry.witness import Witness
from photon.joiner.slot.finals import Finals
from photon.joiner.slot.identity import OutOfStep
from photon.joiner.slot.output import OutputDamaged, SlotLog
from photon.joiner.slot.place import Place, place_of
from photon.joiner.slot.witness import READ_BYTES, difference, shown
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX

KEEP_OUTPUT = (
    "Restore its newest state; if that is lost, run `photon serve datacentre` (or joiner, if it is apart) once with "
    "--accept-damaged-log: it keeps the records in the output, and joins events again that are registered without one"
)


# The records in the redo log, without their newlines -> the text their row writes: the record itself, or all pairs of
# its event.
Logged = Mapping[bytes, bytes]


@dataclass(slots=True)
class Found:
    """What was found and repaired, for the start's log line."""

    # The logged lines (without newline) that are in the output, complete and durable.
    lines: set[bytes] = field(default_factory=set)
    completed: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


def check_age(files: SlotLog, finals: Finals, logged: Logged | None, known: Witness = ()) -> set[bytes]:
    """Raises OutOfStep if output and state differ in age (rule 6), before anything is changed.

    If they are of the same age, the output has all bytes that this state has made durable, and bytes beyond those are
    in its redo log: each line is written from the log, and leaves the log only once it is durable. Final files may be
    moved away, or lack ranges that readers skip. ``logged`` is ``None`` if an operator accepted that parts of the log
    are lost, as lines may come from them. ``known``: the output's copy. Returns the logged lines that are in the
    output beyond the durable part, whole or as a torn beginning.
    """
    beyond: set[bytes] = set()
    for at, kind in enumerate(files.kinds):
        plain, compressed = files.numbers(kind), set(files.numbers(kind, FINAL_SUFFIX))
        for number in plain:
            name = files.name(kind, number)
            size = files.disk.size(files.root / name)
            if (length := finals.length_of(name)) >= 0:
                if size < length and number not in compressed and finals.unseen(name) < 0:
                    _older(files, name, f"has {size} bytes", length)
                continue
            durable = max(files.lengths.get(name, 0), shown(known, at, number, size))
            if size < durable:
                _older(files, name, f"has {size} bytes", durable)
            if logged is not None:
                beyond |= _check_behind(files, name, durable, logged)
        for number in compressed.difference(plain):
            if finals.length_of(files.name(kind, number)) < 0:
                _newer(files, files.name(kind, number, FINAL_SUFFIX))
    for name, length in files.lengths.items():
        if length and finals.length_of(name) < 0 and not files.disk.exists(files.root / name):
            _older(files, name, "does not exist", length)
    return beyond


def _check_behind(files: SlotLog, name: str, durable: int, logged: Logged) -> set[bytes]:
    """Checks a file beyond its durable length, where a power cut may leave holes and a torn end."""
    found: set[bytes] = set()
    rest, at = b"", durable
    while part := files.disk.read(files.root / name, at, READ_BYTES):
        at += len(part)
        *lines, rest = (rest + part).split(b"\n")
        if any(line not in logged and b"\0" not in line for line in lines):
            _newer(files, name)
        found |= logged.keys() & lines
    return found | {rest + missing[:-1] for missing in [_completion(rest, logged)] if missing}


def _older(files: SlotLog, name: str, found: str, durable: int) -> NoReturn:
    raise OutOfStep(
        f"{files.root / name}: {found}, but {durable} bytes of it had been made durable: the output of slot "
        f"{files.slot} was lost, or is an older copy than its state"
    )


def _newer(files: SlotLog, name: str) -> NoReturn:
    raise OutOfStep(
        f"{files.root / name}: has records that are in neither the state nor the redo log of slot {files.slot}: the "
        "state was lost, or is an older copy than the output",
        KEEP_OUTPUT,
    )


def check_never_opened(files: SlotLog) -> None:
    """Raises OutOfStep if the output has anything of the slot. For a state that knows no incarnation."""
    for kind in files.kinds:
        for suffix in (PLAIN_SUFFIX, FINAL_SUFFIX):
            for number in files.numbers(kind, suffix):
                path = files.root / files.name(kind, number, suffix)
                if files.disk.size(path):
                    raise OutOfStep(f"{path}: has records of slot {files.slot}, whose state is missing: it was lost")


def check_witness(files: SlotLog, finals: Finals, witness: Witness) -> None:
    """Raises OutOfStep if the output does not extend the witness.

    A file becomes final only after the witness covers all of it, so for a final file that cannot be compared
    (``Finals.unseen``) the length suffices.
    """
    for kind, log in zip(files.kinds, witness, strict=False):  # a witness of a later release may have more logs
        name = files.name(kind, log.number)
        if not log.length or finals.unseen(name) >= log.length:
            continue
        if found := difference(files.disk, files.root / name, log):
            raise OutOfStep(
                f"{files.root / name}: {found}, but the registry has witnessed {log.length} bytes of it: this "
                f"directory is an older copy of slot {files.slot}"
            )


def check_registry(files: SlotLog, finals: Finals, witness: Witness) -> None:
    """Raises OutOfStep if more was published than the registry has witnessed: the registry is an older copy."""
    told = dict(files.published)
    for kind, number in finals.highest().items():
        told[files.name(kind, number)] = finals.length_of(files.name(kind, number))
    for name, length in told.items():
        has = shown(witness, *place_of(name), length)
        if has < length:
            raise OutOfStep(
                f"{files.root / name}: readers were shown {length} bytes, but the registry has witnessed {has} of "
                f"them: it was restored from an older copy than slot {files.slot}"
            )


def repair_output(files: SlotLog, place: Place | None, logged: Logged, *, log_is_whole: bool = True) -> Found:
    """Searches the output from ``place`` on for the logged lines, without newlines. ``place`` is ``None`` if the log
    is empty.

    Afterwards all of the output is durable and published. A line contains its token and id, so whole lines are
    compared without parsing. Above the published durable length, all lines come from the log; a damaged one (a hole
    after a power cut) is cut off with everything after it, and cut lines count as not found. A torn line is completed
    if exactly one logged line begins like it, but only if the log was read to its last byte: otherwise the line may
    come from a lost frame, so it is cut and redone. An event's pairs are written together and count as one line here:
    if the last ones are missing, they are completed, or the others are cut too. Final files are not searched: their
    ids are cleared, so redoing their lines writes nothing.
    """
    found = Found()
    for at, kind in enumerate(files.kinds):
        numbers = [number for number in files.numbers(kind) if files.final(files.name(kind, number)) < 0]
        for number in numbers:
            looked_from = _looked_from(place[at], number) if place is not None else None
            _repair_file(files, files.name(kind, number), looked_from, logged, found, completes=log_is_whole)
        if numbers:
            files.disk.sync_dir(files.root / kind)
    _check_missing(files)
    files.show()
    return found


def _looked_from(start: tuple[int, int], number: int) -> int | None:
    """Returns the first byte of file ``number`` where logged lines may be; ``None`` if it cannot have any."""
    if number < start[0]:
        return None
    return start[1] if number == start[0] else 0


def _repair_file(
    files: SlotLog, name: str, looked_from: int | None, logged: Logged, found: Found, *, completes: bool
) -> None:
    """Repairs one file: cuts or completes its tail, makes it durable, and collects the logged lines in it."""
    path = files.root / name
    durable = files.lengths.get(name, 0)
    size = files.disk.size(path)
    if size < durable:
        raise OutputDamaged(path, f"{size} bytes long, but {durable} had been made durable")
    if looked_from is None and size == durable:
        return
    begin = durable if looked_from is None else min(durable, looked_from)
    data = files.disk.read(path, begin)
    end = begin + _whole(data, durable - begin, logged)
    lacking = lacking_pairs(data[: end - begin])
    if lacking is not None:
        end = max(begin + lacking, durable)
    tail = data[end - begin :]
    missing = _completion(tail, logged.values()) if completes else b""
    if missing:
        file = files.disk.append(path)
        file.write(missing)
        file.close()
        found.completed.append(name)
    elif tail:
        files.disk.truncate(path, end)
        found.cut.append(name)
    files.disk.rewrite(path, durable)
    present = data[: end - begin] if not missing else data + missing
    found.lines |= logged.keys() & present.split(b"\n")
    files.lengths[name] = files.disk.size(path)


def _whole(data: bytes, trusted: int, logged: Logged) -> int:
    """Returns the length of the undamaged whole lines of ``data``. Does not check the first ``trusted`` bytes."""
    at = trusted
    while (hole := data.find(b"\0", at)) >= 0:
        start = data.rfind(b"\n", trusted, hole) + 1 or trusted
        end = data.find(b"\n", hole)
        if end < 0 or data[start:end] not in logged:
            return start
        at = end + 1
    return max(trusted, data.rfind(b"\n", trusted) + 1)


def _completion(tail: bytes, logged: Iterable[bytes]) -> bytes:
    """Returns the missing part of a torn end, if exactly one logged line begins like it."""
    if not tail or b"\0" in tail:
        return b""
    candidates = {line for line in logged if line.startswith(tail)}
    return candidates.pop()[len(tail) :] + b"\n" if len(candidates) == 1 else b""


def _check_missing(files: SlotLog) -> None:
    for name, length in files.lengths.items():
        if length and not files.disk.exists(files.root / name):
            raise OutputDamaged(files.root / name, f"{length} bytes had been made durable, but the file is gone")


def next_numbers(files: SlotLog, listed: dict[str, int], place: Place | None) -> dict[str, tuple[int, bool]]:
    """Returns for each kind the number of the file to write, and True if it exists and may be continued.

    ``listed``: the highest number in the manifest, for files that were moved away. A final file is not continued.
    """
    starts = {}
    for at, kind in enumerate(files.kinds):
        plain = files.numbers(kind)
        highest = max([*plain, *files.numbers(kind, FINAL_SUFFIX), listed.get(kind, 0)], default=0)
        current = (
            bool(plain)
            and plain[-1] == highest > listed.get(kind, 0)
            and files.name(kind, highest) not in files.rolled
        )
        number = highest if current else highest + 1
        if place is not None and not current:
            number = max(number, place[at][0])
        starts[kind] = (number, current)
    return starts
