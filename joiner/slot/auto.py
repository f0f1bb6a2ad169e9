"""Which slot a joiner takes that was not told one: pure, told what lies on the disk and what the registry knows.

Such slots are named ``DATACENTRE-auto-NUMBER``, so that no two datacentres have one name. One that an earlier joiner
left comes before a new one: its redo log is redone at once. Nothing is decided here for good: who has a slot is
decided by its lock, and which directory is the slot by the registry. So a joiner tries one after the other, and a
crash anywhere leaves at most an empty directory, whose name is taken by the next one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

MARK = "-auto-"
AUTO_MAX = 256
"""Slots of one datacentre that are named by themselves: their numbers go from 1 up to here."""


@dataclass(frozen=True, slots=True)
class Here:
    """A directory below the pipeline's slots."""

    held: bool
    """A process has its lock."""
    opened: bool
    """It was a joiner's slot before; else only its name was taken."""
    left: bool
    """Something may be left to redo in it."""
    retired: bool


def auto_name(datacentre: str, number: int) -> str:
    return f"{datacentre}{MARK}{number}"


def is_auto(slot: str, datacentre: str) -> bool:
    """Whether it is one of the names above in this datacentre."""
    before, _, number = slot.rpartition(MARK)
    if before != datacentre or not (number.isascii() and number.isdigit()) or len(number) > len(str(AUTO_MAX)):
        return False
    return 1 <= int(number) <= AUTO_MAX and auto_name(datacentre, int(number)) == slot


def to_try(
    datacentre: str, here: Mapping[str, Here], known: Mapping[str, bool], named: Container[str]
) -> Iterable[str]:
    """Slots in the order in which they are to be tried; none when all names are in use or lost.

    ``known``: slots of the registry, and whether they are retired; ``named``: those of the deployment file, which are
    never taken. A slot that the registry knows and that has no directory here lies on another machine or is lost: it
    is for an operator to retire.
    """
    redo: list[str] = []
    empty: list[str] = []
    fresh: list[str] = []
    for number in range(1, AUTO_MAX + 1):
        name = auto_name(datacentre, number)
        if name in named or known.get(name, False):
            continue
        there = here.get(name)
        if there is not None and (there.held or there.retired):
            continue
        if there is not None and there.opened:
            (redo if there.left else empty).append(name)
        elif name not in known:
            fresh.append(name)
    return [*redo, *empty, *fresh]
