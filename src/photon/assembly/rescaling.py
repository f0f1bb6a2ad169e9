"""Splits and merges of a topology's intervals, made by the process that runs it, or by the command if none does.

A move is first written into the table (``photon.computing.table``). Then its old owners end, it is made
(``photon.computing.moving``), and the table gets the new intervals. A kill at any moment leaves the move in the
table: the next process to run the topology makes it before anything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from photon.assembly.computing import LEFT_S, POLL_S, Busy, Running, Site
from photon.computing.intervals import Interval, Intervals, Move
from photon.computing.journal import STATUS_SUFFIX, read_status
from photon.computing.moving import merge, split
from photon.computing.store import Store
from photon.computing.table import Known
from photon.config.errors import PhotonError

LEVEL_S = 120.0
"""Time that two intervals to be merged may take to read up to the same position."""


def carry_out(site: Site, tell: Callable[[str], None] = lambda line: None) -> None:
    """Makes the pending move, if there is one. Only for the holder of ``Site.alone``, once its owners have ended.
    Raises PhotonError, OSError: then the move stays pending."""
    known = site.table.look()
    if known.move is not None:
        with ExitStack() as held:
            for each in known.move.old:
                held.enter_context(site.locked(each, LEFT_S))
            refused = _made(site, known.intervals, known.move)
            site.table.settle(known.move, refused)
        tell(f"{known.move}: {refused or 'done'}")
    _sweep(site)


def _made(site: Site, intervals: Intervals, move: Move) -> str:
    """Why it was not made; empty if it was."""
    with ExitStack() as closing:

        def opened(interval: Interval) -> Store:
            store = site.store(interval)
            closing.callback(store.close)
            return store

        def new(interval: Interval) -> Store:
            _remove(site, interval.id)
            return opened(interval)

        olds = [opened(intervals.by_id[each]) for each in move.old]
        retired = [store.successors() for store in olds]
        names = tuple(each.id for each in move.new)
        try:
            if len(move.new) == 2:
                if retired != [names]:
                    split(olds[0], move.new[1].low, (names[0], names[1]), new)
            else:
                if not any(retired):
                    _level(site, move)
                merge((olds[0], olds[1]), names[0], new, site.topology)
        except (PhotonError, OSError) as error:
            if any(store.successors() for store in olds):
                raise  # it has begun; the next run completes it
            return " ".join(str(error).split())
    return ""


def _level(site: Site, move: Move) -> None:
    running = Running(site, move.old, locked=True)
    try:
        running.level(LEVEL_S)
    finally:
        running.close()


def _sweep(site: Site) -> None:
    """Removes stores of intervals that are gone, or that were begun and refused, and reports of owners that are on
    other machines now."""
    known = site.here()
    for path in site.state.glob("*.db"):
        if path.stem not in known:
            _remove(site, path.stem)
    for path in site.state.glob(f"*{STATUS_SUFFIX}"):
        if path.name.removesuffix(STATUS_SUFFIX) not in known:
            path.unlink(missing_ok=True)


def _remove(site: Site, interval: str) -> None:
    for suffix in (".db-shm", ".db-wal", ".db", ".sock", ".lock"):
        (site.state / f"{interval}{suffix}").unlink(missing_ok=True)


def make(site: Site, move: Move, within_s: float) -> Intervals:
    """Has the running process make a move, or makes it itself. Returns the new intervals. Raises UsageError if
    another move is pending, PhotonError if it was refused, and what ``settled`` raises."""
    site.table.begin(move)
    known = settled(site, within_s)
    if known.refused:
        raise PhotonError(f"{move}: {known.refused}; nothing was changed")
    return known.intervals


def settled(site: Site, within_s: float) -> Known:
    """Waits until no move is pending; makes an interrupted one. Raises PhotonError if that takes too long."""
    until = site.clock.monotonic() + within_s
    while (known := site.table.look()).move is not None:
        with suppress(Busy), site.alone():
            site.adopt()
            carry_out(site)
            continue
        if site.clock.monotonic() >= until:
            raise PhotonError(f"{known.move}: not within {within_s:g} s; photon compute run makes it still")
        time.sleep(POLL_S)
    return known


def reload(site: Site, within_s: float) -> bool:
    """Has all owners run the site's topology. False if nobody runs: the next start does. Raises PhotonError if they
    take too long."""
    site.table.look()
    with suppress(Busy), site.alone():
        site.adopt()
        return False
    began_ns = site.clock.now_ns()
    version = site.table.adopt(site.topology.shape, again=True)
    until = site.clock.monotonic() + within_s
    while True:
        known = site.table.look()
        found = {each.interval: each for each in read_status(site.disk, site.state) if each.at_ns >= began_ns}
        late = [each for each in known.intervals.by_id if each not in found or found[each].topology_version < version]
        if not late:
            return True
        if site.clock.monotonic() >= until:
            raise PhotonError(
                f"{', '.join(late)} do not run it after {within_s:g} s; photon compute run says why, and tries on"
            )
        time.sleep(POLL_S)
