"""Splits and merges of a topology's intervals, made by whoever runs it, or by the command while nobody does.

A move is written into the table first (``photon.computing.table``); then its old owners end, it is made
(``photon.computing.moving``), and the table has the new intervals. A kill at any moment leaves the move in the table:
who runs the topology next makes it before anything else.
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
"""So long two that are to be merged may take to read up to the same position."""


def carry_out(site: Site, tell: Callable[[str], None] = lambda line: None) -> None:
    """Makes the move that is under way, if there is one. For who holds ``Site.alone``, once its owners have ended.
    Raises PhotonError, OSError: then it is under way still."""
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
    """Why not; empty: it was made."""
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
                raise  # it has begun, and is made to its end the next time
            return " ".join(str(error).split())
    return ""


def _level(site: Site, move: Move) -> None:
    running = Running(site, move.old, locked=True)
    try:
        running.level(LEVEL_S)
    finally:
        running.close()


def _sweep(site: Site) -> None:
    """Stores of intervals that are no more, or that were begun and refused; what was said by owners that are on other
    machines now."""
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
    """Has a move made by who runs the topology, or makes it. The intervals afterwards. Raises UsageError where
    another one is under way, PhotonError where it was refused, and as ``settled``."""
    site.table.begin(move)
    known = settled(site, within_s)
    if known.refused:
        raise PhotonError(f"{move}: {known.refused}; nothing was changed")
    return known.intervals


def settled(site: Site, within_s: float) -> Known:
    """Once no move is under way: one that was broken off is made. Raises PhotonError where it is not made in time."""
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
    """Has all owners run the topology of the site. False: nobody runs, the next start does. Raises PhotonError where
    they do not in time."""
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
