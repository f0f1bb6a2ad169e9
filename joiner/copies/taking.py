"""Fetches output that the slot lacks from its copy at a start (rule 6): the copy takes precedence.

This is needed if an older copy of the slot's directory was restored. Then the first file that differs from the copy
and all later files are fetched and replaced. A file whose bytes differ from the copy's is replaced only if the output
lacks bytes that the registry has witnessed: otherwise it was rightly served while the keeper was unreachable, and the
copy's bytes were never published. Since this is rare and comes before anything is served, the calling thread does the
disk work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from photon.config.disk import Disk
from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.copies.api import CopyBytes, CopyOf, Keeper
from photon.joiner.slot.finals import Finals
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.output import SlotLog
from photon.joiner.slot.witness import difference, witness_log

ASK_S = 10.0
TRIES_MAX = 6  # per request; then the start is refused, and the next one continues from there
TEMPORARY = ".taken.tmp"


class CopySilent(SlotRefused):
    """The output lacks witnessed bytes, and it is unknown if the copy has them: the start is refused for now.

    An earlier start in this directory may have reached the copy and opened the slot: then this directory has the
    newest state, and no other one can be restored in its place.
    """


Lacking = dict[int, tuple[int, WitnessLog]]  # place in KINDS -> (the first file to fetch, the copy's end).


def lacking(files: SlotLog, finals: Finals, ends: Witness) -> Lacking:
    """Returns the logs in which the output does not begin with the copy's bytes. Raises SlotRefused, OSError."""
    found: Lacking = {}
    for at, end in enumerate(ends):
        kind = files.kinds[at]
        name = files.name(kind, end.number)
        if not end.length or finals.unseen(name) >= end.length:
            continue
        if not difference(files.disk, files.root / name, end):
            continue
        plain = files.numbers(kind)
        if plain and plain[-1] > end.number:
            raise SlotRefused(
                f"{files.root / name}: lacks some of the {end.length} bytes that its copy has, but there are "
                "later files; restore the slot's newest state and output, or set them aside and retire the slot"
            )
        highest = finals.highest().get(kind, 0)
        found[at] = (max([number for number in plain if number <= end.number], default=highest + 1), end)
    return found


async def take(
    files: SlotLog,
    wanted: Lacking,
    keeper: Keeper,
    of: CopyOf,
    pause: Callable[[float], Awaitable[None]],
    *,
    replaces: bool,
) -> list[str] | None:
    """Fetches files from the copy and makes them durable. Returns their names.

    Without ``replaces``, if a file here is not a prefix of its copy, it changes nothing and returns ``None``. Raises
    SlotRefused, OSError.
    """
    fetched: list[str] = []
    for at, (first, end) in wanted.items():
        files.disk.make_dir(files.root / files.kinds[at])
        for number in range(first, end.number + 1):
            name = files.name(files.kinds[at], number)
            until = end.length if number == end.number else -1
            if await _fetch(files.disk, files.root / name, until, partial(_ask, keeper, of, pause, at, number)):
                fetched.append(name)
    paths = [files.root / name for name in fetched]
    if not replaces and not all(_extends(files.disk, path) for path in paths):
        for path in paths:
            files.disk.remove(_temporary(path))
        return None
    for path in paths:
        files.disk.rename(_temporary(path), path)
        files.disk.sync_dir(path.parent)
    for at, (_, end) in wanted.items():
        name = files.name(files.kinds[at], end.number)
        if difference(files.disk, files.root / name, end):
            raise SlotRefused(f"{files.root / name}: the copy sent bytes that differ from its checksum; start again")
    return fetched


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY)


def _extends(disk: Disk, path: Path) -> bool:
    size = disk.size(path) if disk.exists(path) else 0
    if disk.size(_temporary(path)) < size:
        return False
    return witness_log(disk, path, 0, size) == witness_log(disk, _temporary(path), 0, size)


async def _fetch(disk: Disk, path: Path, until: int, ask: Callable[[int], Awaitable[CopyBytes]]) -> bool:
    """Fetches one file up to ``until``, or with -1 all of it. Returns False if the copy has no such file."""
    temporary = _temporary(path)
    part = await ask(0)
    if part.size < 0:
        return False
    until = part.size if until < 0 else until
    if disk.exists(temporary):
        disk.remove(temporary)
    with closing(disk.append(temporary)) as file:
        while True:
            file.write(part.data[: until - file.size])
            if file.size >= until:
                break
            part = await ask(file.size)
            if not part.data:
                raise SlotRefused(f"{path}: its copy ends at byte {file.size} of {until}; start again")
        file.sync()
    return True


async def _ask(
    keeper: Keeper, of: CopyOf, pause: Callable[[float], Awaitable[None]], at: int, number: int, offset: int
) -> CopyBytes:
    for _ in range(TRIES_MAX):
        part = await keeper.read(of, at, number, offset, timeout=ASK_S)
        if part is not None:
            return part
        await pause(1.0)
    raise CopySilent(
        f"slot {of.slot}: this directory lacks output that its copy has, and the keeper of the copy does not answer; "
        "start again when it does"
    )
