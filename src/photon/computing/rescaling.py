"""Splits and merges a topology's intervals, in its running process, or in the command if none is running.

A move is first written to the table (``photon.computing.table``). Then the old owners end, the move is carried out
(``photon.computing.moving``), and the table gets the new intervals. If the process is killed before that, the move is
still in the table, and the next process to run the topology completes it first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

from photon.computing.intervals import Interval, Intervals, Move
from photon.computing.journal import STATUS_SUFFIX, Status, read_status
from photon.computing.moving import merge, split
from photon.computing.running import POLL_S, SAY_S, Running
from photon.computing.site import LEFT_S, Busy, Site
from photon.computing.store import Store
from photon.computing.table import Known
from photon.config.errors import PhotonError

LEVEL_S = 120.0  # time limit for two intervals to read up to the same position before a merge


def run(
    site: Site,
    stop: threading.Event,
    *,
    share: tuple[int, int] = (1, 1),
    exactly: bool = False,
    once: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    look: Callable[[list[Status]], None] = lambda found: None,
) -> bool:
    """Runs this process's share of the intervals until ``stop``, and carries out their splits and merges; see
    ``Running``. ``exactly``: runs only while there are as many intervals as processes. Returns True if all work is
    done. Raises PhotonError, OSError."""
    if share == (1, 1) or (share[0] == 1 and site.shared is not None):  # no other process makes a split now
        _sweep(site)
    until_s = site.clock.monotonic() + LEFT_S
    while not stop.is_set():
        move, mine = site.table.look().move, site.share(*share)
        if exactly and len(site.here()) != share[1] and move is None:
            return False
        ours = move is not None and move.old[0] in mine
        if not mine or (not ours and move is not None and not set(move.old).isdisjoint(mine)):
            stop.wait(POLL_S if mine else SAY_S)
            continue
        try:
            if ours:
                carry_out(site, tell)
            else:
                with closing(Running(site, share=share, once=once, tell=tell)) as running:
                    if running.run(stop, look):
                        return True
            until_s = site.clock.monotonic() + LEFT_S
        except Busy:  # another process is ending, or has not followed a split or merge yet
            if site.clock.monotonic() >= until_s:
                raise
            stop.wait(POLL_S)
    return True


def carry_out(site: Site, tell: Callable[[str], None] = lambda line: None) -> None:
    """Carries out the pending move, if any. The caller must hold ``Site.alone``, or be the process that runs the
    move's first interval, after its owners have ended. If it raises PhotonError or OSError, the move stays
    pending."""
    known = site.table.look()
    if known.move is not None:
        with ExitStack() as held:
            for each in known.move.old:
                held.enter_context(site.locked(each, LEFT_S))
            if site.table.look().move != known.move:  # already made by the process that owned them
                return
            refused = _made(site, known.intervals, known.move)
            site.table.settle(known.move, refused)
        tell(f"{known.move}: {refused or 'done'}")
    _sweep(site)


def _made(site: Site, intervals: Intervals, move: Move) -> str:
    """Carries out a move. Returns the reason if it was refused; otherwise ""."""
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
                raise  # already begun, so the next run completes it
            return " ".join(str(error).split())
    return ""


def _level(site: Site, move: Move) -> None:
    running = Running(site, move.old, locked=True)
    try:
        running.level(LEVEL_S)
    finally:
        running.close()


def _sweep(site: Site) -> None:
    """Removes the stores of former intervals and of refused moves, and the status of owners now on other machines.
    Does nothing while a move is pending, as it may lack only the table's update."""
    # Listed before the table is read: the stores of a move that begins afterwards are not among them
    stores, reports = list(site.state.glob("*.db")), list(site.state.glob(f"*{STATUS_SUFFIX}"))
    if site.table.look().move is not None:
        return
    known = site.here()
    for path in stores:
        if path.stem not in known:
            _remove(site, path.stem)
    for path in reports:
        if path.name.removesuffix(STATUS_SUFFIX) not in known:
            path.unlink(missing_ok=True)


def _remove(site: Site, interval: str) -> None:
    for suffix in (".db-shm", ".db-wal", ".db", ".sock", ".lock"):
        (site.state / f"{interval}{suffix}").unlink(missing_ok=True)


def make(site: Site, move: Move, within_s: float) -> Intervals:
    """Has the running process carry out a move, or carries it out itself if none is running. Returns the new
    intervals. Raises UsageError if another move is pending, PhotonError if it was refused, and the errors of
    ``settled``."""
    site.table.begin(move)
    known = settled(site, within_s)
    if known.refused:
        raise PhotonError(f"{move}: {known.refused}; nothing was changed")
    return known.intervals


def settled(site: Site, within_s: float) -> Known:
    """Waits until no move is pending; carries out an interrupted one. Raises PhotonError if that takes too long."""
    until = site.clock.monotonic() + within_s
    while (known := site.table.look()).move is not None:
        with suppress(Busy), site.alone():
            site.adopt()
            carry_out(site)
            continue
        if site.clock.monotonic() >= until:
            raise PhotonError(f"{known.move}: not done in {within_s:g} s; photon compute run will still complete it")
        time.sleep(POLL_S)
    return known


def reload(site: Site, within_s: float) -> bool:
    """Makes all owners run the site's topology. Returns False if none is running; the next start will use it. Raises
    PhotonError if they take too long."""
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
                f"{', '.join(late)} do not run it after {within_s:g} s; photon compute run reports why, and keeps "
                "trying"
            )
        time.sleep(POLL_S)
