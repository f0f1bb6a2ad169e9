"""The loop of one process over the intervals that it owns."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

from photon.adapters.containment import Watched
from photon.computing.engine import Engine
from photon.computing.errors import ComputingError
from photon.computing.injector import Reading, furthest
from photon.computing.intervals import Interval
from photon.computing.journal import PublishedWatermark, Status, streams_said, write_status
from photon.computing.links import Links
from photon.computing.owner import Owner
from photon.computing.site import Busy, Site, reopen
from photon.config.back_off import BackOff
from photon.config.errors import UsageError

POLL_S = 0.02
# Shortest and longest pause between checks of published lengths while idle; it doubles in between.
POLLS = BackOff(first=POLL_S, most=0.1)
SAY_S = 1.0


class Running:
    def __init__(
        self,
        site: Site,
        only: Sequence[str] = (),
        *,
        share: tuple[int, int] = (1, 1),
        once: bool = False,
        locked: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``only``: the intervals to run; if empty, the intervals of ``share`` (this process, number of processes).
        ``locked``: their locks are already held. Raises Busy, UsageError, and errors of an engine or a publisher."""
        self.site = site
        self._tell = tell
        self._share = None if only else share
        self._here = list(only) or site.share(*share)
        self._once = once
        self._closing = ExitStack()
        self._counted: dict[str, tuple[float, int]] = {}
        self._journals: dict[str, PublishedWatermark] = {}
        self._said_s = -SAY_S
        self._behind: list[Owner] = []  # owners that do not run the site's topology yet
        self._refused = ""  # the reported reason why they do not
        self._closing.callback(site.close)
        try:
            for each in () if locked else self._here:
                self._closing.enter_context(site.locked(each))
            self._intervals = site.intervals()  # as a lock's holder may have split or merged it
            if unknown := set(self._here) - set(self._intervals.by_id):
                raise Busy(f"{site.state}: has no interval {', '.join(sorted(unknown))} any more")
            self._links = Links(site.state, self._here, self._intervals.by_id)
            self._closing.callback(self._links.close)
            self._owners = [self._owner(self._intervals.by_id[each]) for each in self._here]
        except BaseException:
            self._closing.close()
            raise

    def _owner(self, interval: Interval) -> Owner:
        site = self.site
        store = site.store(interval)
        self._closing.callback(store.close)
        known = site.table.look()
        if not self._once and (site.shared is not None or known.closing == "reopening"):
            reopen(store, interval.id)
        engine = Engine(
            site.topology, store, self._intervals, owner=f"{os.uname().nodename}:{os.getpid()}", guards=Watched
        )
        injectors = self._injectors(interval, engine)
        owner = Owner(
            interval.id, engine, injectors, site.published,
            disk=site.disk, clock=site.clock, links=self._links, state=site.id, where=str(site.state),
            since_ns=site.replay.since_ns, once=self._once, tell=self._tell,
        )  # fmt: skip
        self._closing.callback(owner.close)
        if self._once:
            owner.upto = known.ends
        return owner

    def _injectors(self, interval: Interval, engine: Engine, known: Sequence[Reading] = ()) -> list[Reading]:
        """Returns the injectors of all sources that an owner reads. ``known``: the ones that it already has."""
        site, kept = self.site, {each.stream: each for each in known}
        found = []
        for stream, source in site.topology.sources.items():
            if source.shared or interval == self._intervals.all[0]:
                at, before = engine.position(stream), kept.get(stream)
                found.append(site.reading(source, at, once=self._once, tell=self._tell, known=before))
            else:
                engine.leave(stream)
        return found

    def run(self, stop: threading.Event, look: Callable[[list[Status]], None] = lambda _: None) -> bool:
        """Runs until ``stop`` is set. The run of a share also ends when the share changes, or when part of it must be
        split or merged; a ``once`` run of all intervals ends when everything is processed. At the end, it commits and
        publishes the input taken. Returns False if ``_follow`` returned False. ``look`` gets the status once a
        second. Raises the errors that end an owner."""
        goes_on, pauses = True, POLLS.pauses()
        while goes_on and not stop.is_set():
            busy = [owner.step() for owner in self._owners]
            done = self._once and all(owner.ended for owner in self._owners)
            if done or self.site.clock.monotonic() - self._said_s >= SAY_S:
                look(self.say())
                goes_on = self._follow()
            if done and self._share == (1, 1):
                break
            if any(busy):
                pauses = POLLS.pauses()
            else:
                if self._links.arrived.wait(next(pauses)):
                    pauses = POLLS.pauses()
                self._links.arrived.clear()
        for owner in self._owners:
            owner.drain()
        look(self.say())
        return goes_on

    def _follow(self) -> bool:
        """Follows changes of the intervals and the topology.

        Returns False if this process must run other intervals, or must split or merge one.
        """
        known = self.site.table.look()
        if known.intervals.all != self._intervals.all:
            if self._share is not None and self.site.share(*self._share) != self._here:
                return False
            self._intervals = known.intervals
            self._links.rewire(known.intervals.by_id)
            for owner in self._owners:
                owner.rewire(known.intervals)
        try:
            if known.version not in (0, self.site.topology.version):
                self.site.follow(known.version, known.shape)
                self._behind = list(self._owners)
            for owner in list(self._behind):
                interval = self._intervals.by_id[owner.interval]
                injectors = self._injectors(interval, owner.engine, owner.injectors)
                owner.change(self.site.topology, injectors, self.site.published)
                self._behind.remove(owner)
        except UsageError as error:  # retried in a second
            if self._refused != str(error):
                self._refused = str(error)
                self._tell(f"not changed yet: {error}")
        return known.move is None or self._share is None or set(known.move.old).isdisjoint(self._here)

    def level(self, within_s: float) -> None:
        """Makes all owners here read each shared input up to the furthest position that any of them has reached.
        Raises ComputingError if that takes too long, and the errors of ``run``."""
        shared = [stream for stream, source in self.site.topology.sources.items() if source.shared]
        upto = {stream: furthest(owner.engine.position(stream) for owner in self._owners) for stream in shared}
        for owner in self._owners:
            owner.upto = upto
        until = self.site.clock.monotonic() + within_s
        while any(len({owner.engine.position(each) for owner in self._owners}) > 1 for each in shared):
            busy = [owner.step() for owner in self._owners]
            if not any(busy):
                time.sleep(POLL_S)
            if self.site.clock.monotonic() >= until:
                held = "".join(f": {owner.engine.held}" for owner in self._owners if owner.engine.held)
                raise ComputingError(f"{' and '.join(self._here)} have not read up to the same position{held}")
        for owner in self._owners:
            owner.engine.commit()

    def rest(self, upto: Mapping[str, bytes], stop: threading.Event, look: Callable[[list[Status]], None]) -> bool:
        """Makes all owners read up to these positions, by source, and publish the results. Returns False if stopped.
        Raises the errors of ``run``."""
        for owner in self._owners:
            owner.upto = upto
        while not stop.is_set():
            busy = [owner.step() for owner in self._owners]
            if not any(busy) and all(owner.rests for owner in self._owners):
                break
            if self.site.clock.monotonic() - self._said_s >= SAY_S:
                look(self.say())
            if not any(busy):
                time.sleep(POLL_S)
        for owner in self._owners:
            owner.drain()
        look(self.say())
        return not stop.is_set()

    def say(self) -> list[Status]:
        """Writes the status of each owner, and, if this process has the first interval, the watermarks of published
        streams. Raises Fenced if an interval was given to another machine; an idle owner finds out only here."""
        self._said_s = self.site.clock.monotonic()
        if self.site.shared is not None:
            self.site.shared.check_given(self._here)
        found = [self._status(owner) for owner in self._owners]
        for each in found:
            write_status(self.site.disk, self.site.state, each)
            if self.site.shared is not None:
                self.site.shared.say(each)
        say_watermarks(self.site, self._here, self._journals)
        return found

    def _status(self, owner: Owner) -> Status:
        counts = owner.engine.counts()
        before_s, before = self._counted.get(owner.interval, (self._said_s - SAY_S, 0))
        passed = max(self._said_s - before_s, 1e-3)
        self._counted[owner.interval] = (self._said_s, counts.records)
        exact = any(part.exact for part in self.site.topology.parts.values())
        return Status(
            topology=self.site.topology.name,
            interval=owner.interval,
            pid=os.getpid(),
            at_ns=self.site.clock.now_ns(),
            ended=self._once and owner.ended,
            counts=counts._asdict(),
            records_per_s=round((counts.records - before) / passed, 1),
            published_records=owner.published_records,
            watermarks=owner.engine.watermarks(),
            published=owner.published,
            sources={each.stream: each.mark() for each in owner.injectors},
            exact=exact,
            held_by={each.stream: each.held_by(exact=exact) for each in owner.injectors},
            held=owner.engine.held,
            faults=owner.faults,
            topology_version=owner.engine.version,
        )

    def close(self) -> None:
        for each in self._journals.values():
            each.close()
        self._closing.close()


def say_watermarks(site: Site, here: Collection[str], journals: dict[str, PublishedWatermark]) -> None:
    """Journals the watermark of each published stream: the lowest of all owners on all machines. Only the process
    with the first interval does so. ``here``: the intervals of this process; ``journals``: the open journals."""
    intervals = site.table.look().intervals
    if intervals.all[0].id not in here:
        return
    for stream, marks in streams_said(site.statuses(), intervals.by_id).items():
        directory = site.published.get(stream)
        if directory is None:
            continue
        if stream not in journals:
            journals[stream] = PublishedWatermark(site.disk, directory)
        journals[stream].say(marks, site.clock.now_ns())
