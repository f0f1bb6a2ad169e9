"""``photon compute run`` on this machine: one process for each interval, kept by a supervisor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from photon.assembly.computing import site_of
from photon.computing import rescaling
from photon.computing.journal import Status
from photon.computing.running import SAY_S, Running
from photon.computing.site import Site
from photon.computing.wire import NEVER_NS
from photon.config.clock import utc
from photon.config.errors import PhotonError, UsageError
from photon.supervision.process_log import LOG_BYTES, OWN, LogFollower
from photon.supervision.supervisor import Service, Supervisor, Watching

Look = Callable[[list[Status]], None]
ATTEMPTS = 20  # attempts to make two runs read growing logs up to the same place


def run(
    file: Path,
    state: Path | None,
    share: tuple[int, int] | None,
    *,
    once: bool,
    processes: int,
    stop: threading.Event,
    tell: Callable[[str], None],
    look: Look,
    accept_lost_offsets: bool = False,
) -> str:
    """Runs a topology; returns its name. ``share``: this process's number and the number of processes; `None` runs
    all of them. ``look`` receives the state once a second, and at the end. Raises PhotonError, OSError."""
    site = site_of(file, state)
    name, site.accept_lost_offsets = site.topology.name, accept_lost_offsets

    def run_(to_the_end: bool) -> bool:
        if not rescaling.run(site, stop, exactly=True, once=to_the_end, tell=tell, look=look):
            options = {"--once": to_the_end, "--accept-lost-offsets": accept_lost_offsets}
            given = [each for each, is_given in options.items() if is_given]
            arguments = ["compute", "run", str(file), "--state", str(site.state), *given]
            asyncio.run(_apart(site, arguments, to_the_end, stop, tell, look))
        return not stop.is_set()

    if share is not None:
        site.adopt()
        rescaling.run(site, stop, share=share, once=once, tell=tell, look=look)
        return name
    with closing(site), site.alone():
        site.intervals(processes)
        site.adopt()
        site.runs(once, run_)
    return name


def put_in_place(
    file: Path,
    state: Path,
    *,
    once: bool,
    processes: int,
    stop: threading.Event,
    tell: Callable[[str], None],
    look: Look,
) -> bool:
    """Replaces the previous run by the replay with this state; False if stopped before. Both first read up to the
    same place: the old streams then count the records before the replay's time, the new ones all others. Raises
    PhotonError, OSError; then nothing has changed, and a repeated call continues."""
    new = site_of(file, state)
    old = site_of(file, new.replay.first)
    old.relays = new.relays = False  # topics would go on meanwhile
    if old.state == new.state:
        with closing(new), new.alone():
            new.adopt()  # marks the earlier streams, if that was interrupted
        return True
    with closing(old), closing(new), old.alone(), new.alone():
        for site in (new, old):
            site.intervals(processes)
            site.adopt()
            rescaling.carry_out(site, tell)
        for _ in range(ATTEMPTS):  # retries, as logs may grow meanwhile
            ends = old.ends()
            for site in (new, old):
                site.runs(once, partial(_rest, site, ends, stop, tell, look), ends)
                if stop.is_set():
                    return False
            if old.logs_read() == new.logs_read():
                break
        else:
            raise UsageError(f"{new.topology.name}: its logs grow too fast for both runs to reach the same place; "
                             "stop their writers for a moment")  # fmt: skip
        for site in (new, old):
            _check_complete(site, new.replay.from_ns, once=once)
        new.replay.place()
    with closing(site_of(file, state)) as placed:
        placed.adopt()
    return True


def _rest(
    site: Site,
    ends: Mapping[str, bytes],
    stop: threading.Event,
    tell: Callable[[str], None],
    look: Look,
    to_the_end: bool,
) -> bool:
    if to_the_end:
        return rescaling.run(site, stop, once=True, tell=tell, look=look) and not stop.is_set()
    with closing(Running(site, tell=tell)) as running:
        return running.rest(ends, stop, look)


def _check_complete(site: Site, from_ns: int, *, once: bool) -> None:
    """Raises UsageError unless everything before ``from_ns`` is published."""
    found = site.statuses()
    if aside := sum(each.counts.get("aside", 0) for each in found):
        raise UsageError(f"{site.state}: {aside} records and timers are put aside, so their results are not "
                         "published: fix the computation, then run this again")  # fmt: skip
    low_ns = min(mark.percentile_ns for each in found for mark in each.watermarks.values())
    if not once and low_ns < from_ns:
        upto = "nothing" if low_ns == NEVER_NS else f"records before {utc(low_ns)}"
        raise UsageError(f"{site.state}: only {upto} are complete, so the replay needs an earlier --from; or "
                         "--once, if everything is published")  # fmt: skip


async def _apart(
    site: Site, arguments: Sequence[str], once: bool, stop: threading.Event, tell: Callable[[str], None], look: Look
) -> None:
    """Runs a process for each interval until ``stop``; with ``once`` until all have read all input."""
    began_ns, logs = site.clock.now_ns(), list[LogFollower]()

    def heard(name: str, what: str) -> None:
        if what.startswith("ended by"):  # a signal; see the log
            tell(f"{name}: {what}")

    def hand_on() -> list[Status]:
        for line in (line for log in logs for line in log.lines()):
            tell(line.removeprefix(OWN))
        found = [each for each in site.statuses() if each.at_ns >= began_ns]
        look(found)
        return found

    supervisor = Supervisor(tell=heard, watching=Watching(unhealthy_s=None, log_bytes=LOG_BYTES))
    try:
        while not stop.is_set():
            if (count := len(site.here())) != len(logs):
                await supervisor.remove(supervisor.names())
                hand_on()
                services = [_service(site, arguments, number, count) for number in range(1, count + 1)]
                logs[:] = [LogFollower(each.log) for each in services]
                await supervisor.start(services)
            if (failure := supervisor.failure()) is not None:
                error = PhotonError(failure)
                error.exit_code = max(each.exit_code or 0 for each in supervisor.states()) or error.exit_code
                raise error
            found = hand_on()
            if once and len(found) == count and all(each.ended for each in found):
                break
            await asyncio.to_thread(stop.wait, SAY_S)
    finally:
        await supervisor.stop([supervisor.names()[1:]])  # the first one journals what all have published
        hand_on()


def _service(site: Site, arguments: Sequence[str], number: int, of: int) -> Service:
    share = ("--share", str(number), str(of), "--quiet", "--stop-with-parent")
    return Service(f"process {number}", (*arguments, *share), site.state / "logs" / f"{number}.log")
