"""What a start finds: which logged lines stand in the output; repairs the output's tails (rules 5 and 7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from photon.idregistry.api import Kind
from photon.joiner.slot.output import OutputDamaged, OutputFiles
from photon.joiner.slot.place import DIRECTORY_OF, KINDS, Place


@dataclass(slots=True)
class Found:
    """What was found and what was done, for the start's log line."""

    lines: set[bytes] = field(default_factory=set)
    """The logged lines (without their newline) that stand in the output, whole and durable."""
    completed: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


def repair_output(files: OutputFiles, place: Place | None, logged: set[bytes], *, log_is_whole: bool = True) -> Found:
    """Looks for the logged lines (without their newline) in the output from ``place`` on (None: the log is empty).

    Afterwards all of the output is durable and published. A line names its token and its id, so whole lines are
    compared: nothing needs to be parsed here. Above the published durable length, all lines come from the log; a
    damaged one (a hole after a power cut) is cut off with all after it, for what is cut counts as not found. Where
    frames of the log are lost a torn line may be of one of them, though only another logged line begins like it: it
    is cut.
    """
    found = Found()
    for at, kind in enumerate(KINDS):
        numbers = files.numbers(kind)
        for number in numbers:
            looked_from = _looked_from(place[at], number) if place is not None else None
            _repair_file(files, files.name(kind, number), looked_from, logged, found, completes=log_is_whole)
        if numbers:
            files.disk.sync_dir(files.root / DIRECTORY_OF[kind])
    _check_missing(files)
    files.publish()
    return found


def _looked_from(start: tuple[int, int], number: int) -> int | None:
    """From which byte of file ``number`` logged lines may stand; None: they cannot."""
    if number < start[0]:
        return None
    return start[1] if number == start[0] else 0


def _repair_file(
    files: OutputFiles, name: str, looked_from: int | None, logged: set[bytes], found: Found, *, completes: bool
) -> None:
    """One file: cut or complete its tail, make it durable, collect the logged lines."""
    path = files.root / name
    durable = files.lengths.get(name, 0)
    size = files.disk.size(path)
    if size < durable:
        raise OutputDamaged(str(path), f"{size} bytes long, but {durable} had been made durable")
    if looked_from is None and size == durable:
        return
    begin = durable if looked_from is None else min(durable, looked_from)
    data = files.disk.read(path, begin)
    end = begin + _whole(data, durable - begin, logged)
    tail = data[end - begin :]
    missing = _completion(tail, logged) if completes else b""
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
    found.lines |= logged.intersection(present.split(b"\n"))
    files.lengths[name] = files.disk.size(path)


def _whole(data: bytes, trusted: int, logged: set[bytes]) -> int:
    """How many bytes of ``data`` are undamaged whole lines; the first ``trusted`` are not doubted."""
    at = trusted
    while (hole := data.find(b"\0", at)) >= 0:
        start = data.rfind(b"\n", trusted, hole) + 1 or trusted
        end = data.find(b"\n", hole)
        if end < 0 or data[start:end] not in logged:
            return start
        at = end + 1
    return max(trusted, data.rfind(b"\n", trusted) + 1)


def _completion(tail: bytes, logged: set[bytes]) -> bytes:
    """What is missing of a torn last line, where it is the beginning of exactly one logged line."""
    if not tail or b"\0" in tail or b"\n" in tail:
        return b""
    candidates = [line for line in logged if line.startswith(tail)]
    return candidates[0][len(tail) :] + b"\n" if len(candidates) == 1 else b""


def _check_missing(files: OutputFiles) -> None:
    for name, length in files.lengths.items():
        if length and not files.disk.exists(files.root / name):
            raise OutputDamaged(str(files.root / name), f"{length} bytes had been made durable, but the file is gone")


def next_numbers(files: OutputFiles, listed: dict[Kind, int], place: Place | None) -> dict[Kind, tuple[int, bool]]:
    """For each kind: the number of the file to write to, and whether it exists and may be continued.

    ``listed``: the highest number the manifest knows, for files that were taken away.
    """
    starts = {}
    for at, kind in enumerate(KINDS):
        plain = files.numbers(kind)
        highest = max([*plain, *files.numbers(kind, ".jsonl.gz"), listed.get(kind, 0)], default=0)
        current = bool(plain) and plain[-1] == highest and files.name(kind, highest) not in files.rolled
        number = highest if current else highest + 1
        if place is not None and not current:
            number = max(number, place[at][0])
        starts[kind] = (number, current)
    return starts
