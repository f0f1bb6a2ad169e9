"""``photon serve compute``: runs one process of a ``[compute.NAME]`` and reports the status of its computations.

Each process runs its share of the key intervals, in a thread. If the file is unusable or a run fails, the process
keeps answering, reports the problem in one line, and retries when the file changes and from time to time. If user
code kills the process, it is restarted like any other process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from photon.adapters.crumbs import predecessor
from photon.assembly.computing import site_of
from photon.assembly.room import Room
from photon.computing import rescaling
from photon.computing.errors import ComputingError
from photon.computing.journal import Status, put_status, read_status
from photon.computing.replay import current
from photon.computing.shared import FILE_NAME as HBASE_NAME
from photon.computing.table import Table
from photon.computing.wire import ENDED_NS, NEVER_NS
from photon.config.back_off import BackOff
from photon.config.clock import NS_PER_S, Clock, utc
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.roles import Role
from photon.config.stopping import first, until
from photon.config.structured import get_logger
from photon.config.words import duration, many

# Shortest and longest delay before a run is restarted. A run that outlasts the longest delay resets it.
RETRY = BackOff(first=1.0, most=30.0)
LOOK_S = 0.5  # how often the file is checked during that delay
SILENT_S = 30.0  # an owner that reports nothing for this long counts as silent
STILL_S = 60.0  # a watermark that has not moved for this long raises an alarm
FAULTS_SHOWN = 5

log = get_logger(__name__)


async def serve_compute(room: Room) -> None:
    """Serves one process of a ``[compute.NAME]``. The first one reports the status of all. Raises UsageError,
    CannotListen."""
    known = {process: (name, each, n) for name, each in room.settings.compute.items()
             for n, process in enumerate(each.names(name), 1)}  # fmt: skip
    name, own, number = room.one_of("compute", known)
    file, state = room.base / own.file, room.base / own.state
    watch = Watch(name, state, room.clock, predecessor())
    metrics = ProcessMetrics([watch.read, free_space({"state": state})], watch.details)
    metrics = metrics if number == 1 else ProcessMetrics()
    address = own.address if number == 1 else room.listen
    tls = None if address is None else room.tls(Role.COMPUTE, name)
    async with room.answering("compute", address, metrics, tls):
        log.info("compute serves", compute=name, process=number, file=str(file), state=str(state))
        room.up()
        await _keep_on(room, file, watch, lambda stop: _run(file, state, (number, own.processes), stop))


async def _keep_on(room: Room, file: Path, watch: Watch, run: Callable[[threading.Event], None]) -> None:
    """Runs the topology until the room's ``stop`` is set. Restarts it after a failure, because its file or input may
    be corrected."""
    clock, stop, pauses = room.clock, room.stop, RETRY.pauses()
    while True:
        begun_s, version = clock.monotonic(), _version(file)
        watch.begun_ns, ending = clock.now_ns(), threading.Event()
        running = asyncio.create_task(asyncio.to_thread(run, ending))
        await first(stop, [running])
        ending.set()
        try:
            await running
        except Exception as error:
            known = isinstance(error, PhotonError)
            watch.problem = str(error) if known else f"{type(error).__name__}: {error}"
            log.error("computations have ended", compute=watch.name, problem=watch.problem, exc_info=not known)
        if stop.is_set():
            return
        if clock.monotonic() - begun_s > RETRY.most:
            pauses = RETRY.pauses()
        until_s = clock.monotonic() + next(pauses)
        while clock.monotonic() < until_s and _version(file) == version and not await until(stop, LOOK_S):
            pass


def _run(file: Path, state: Path, share: tuple[int, int], stop: threading.Event) -> None:
    """Runs this process's share until ``stop`` or an error. Raises PhotonError, OSError, and any error that the
    file's code raises."""
    site = site_of(file, state)
    with closing(site), site.together():
        site.intervals(share[1])
        site.adopt()
        rescaling.run(site, stop, share=share, tell=log.warning)


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# -- status ----------------------------------------------------------------------------------------------------------
class Watch:
    """Reads the status that the owners write, and remembers when each watermark last moved."""

    def __init__(self, name: str, state: Path, clock: Clock, ended: str = "") -> None:
        """``ended``: how the previous process ended, see ``predecessor``."""
        self.name, self._state, self._clock = name, state, clock
        self.begun_ns = 0  # start time of the current run
        # Why the previous run ended.
        self.problem = f"its process ended ({ended})" if ended not in ("", "exit 0") else ""
        # Source or computation -> (watermark, monotonic time at which it last moved).
        self._moved: dict[str, tuple[int, float]] = {}

    async def read(self, into: Readings) -> None:
        """Adds the metrics to ``into``. Raises OSError."""
        found, said = await asyncio.to_thread(self.look)
        put_status(into, [each for each in found if self._speaks(each)])
        into.put_all("photon_computing", {"running": said["running"], "alarms": len(said["alarms"])})
        for each in said["stages"]:
            labels = {"topology": said["topology"], "computation": each["computation"]}
            into.put("photon_computing_still_seconds", each["still_s"], **labels)
            if each["lag_s"] is not None:
                into.put("photon_computing_lag_seconds", each["lag_s"], **labels)

    async def details(self) -> Mapping[str, Any]:
        """Returns the row of the status page. Raises OSError."""
        return {"computing": (await asyncio.to_thread(self.look))[1]}

    def look(self) -> tuple[list[Status], dict[str, Any]]:
        """Returns all owners' status, and the row of the status page (docs/watching.md#photon-status). Raises
        OSError."""
        state = current(RealDisk(), self._state)
        names = _names(state)
        found = [each for each in read_status(RealDisk(), state) if each.interval in names] if names else []
        if (state / HBASE_NAME).exists():  # the other intervals are on other machines
            names = {each.interval for each in found}
        here = [each for each in found if self._speaks(each)]
        running = bool(here)
        said: dict[str, Any] = {
            "compute": self.name,
            "topology": found[0].topology if found else "",
            "running": running,
            "problem": "" if running else self.problem,
            "intervals": len(names),
            "silent": len(names) - len(here),
            "processes": len({each.pid for each in here}),
            "records_per_s": sum(each.records_per_s for each in here),
            **{name: sum(each.counts.get(name, 0) for each in here) for name in ("records", "late", "aside")},
            "published": sum(each.published_records for each in here),
            **self._moving(found if len(found) == len(names) else ()),
            "held": sorted({each.held for each in here if each.held}),
            "faults": [line for each in here for line in each.faults][:FAULTS_SHOWN],
        }
        return found, {**said, "alarms": list(alarms(said))}

    def _speaks(self, each: Status) -> bool:
        since_ns = max(self.begun_ns, self._clock.now_ns() - round(SILENT_S * NS_PER_S))
        return each.at_ns >= since_ns

    def _moving(self, found: Sequence[Status]) -> dict[str, list[dict[str, Any]]]:
        """Returns the sources and the computations, producers before consumers. The watermark of each is the lowest
        among its owners; there is none until every owner has reported."""
        held = {name: who for each in found for name, who in each.held_by.items()}
        sources = [
            {"stream": name, **self._row(f"source {name}", found), "held_by": held.get(name, [])}
            for name in dict.fromkeys(name for each in found for name in each.sources)
        ]
        read = {which: min(row[which] for row in sources) for which in ("exact_ns", "percentile_ns") if sources}
        exact = any(each.exact for each in found)
        stages = []
        for number, name in enumerate(dict.fromkeys(name for each in found for name in each.watermarks), 1):
            row = self._row(name, found)
            behind = row["percentile_ns"] < read.get("exact_ns" if exact else "percentile_ns", NEVER_NS)
            stages.append({"stage": number, "computation": name, **row, "stuck": behind and row["still_s"] > STILL_S})
        return {
            "sources": [_without(each, "exact_ns", "percentile_ns") for each in sources],
            "stages": [_without(each, "exact_ns", "percentile_ns") for each in stages],
        }

    def _row(self, what: str, found: Sequence[Status]) -> dict[str, Any]:
        named = [{**each.watermarks, **{f"source {name}": mark for name, mark in each.sources.items()}}
                 for each in found]  # fmt: skip
        marks = [each[what] for each in named if what in each]
        now_ns, now_s = self._clock.now_ns(), self._clock.monotonic()
        low_ns = min(mark.percentile_ns for mark in marks)
        if self._moved.get(what, (None, 0.0))[0] != low_ns:
            self._moved[what] = low_ns, now_s
        known = NEVER_NS < low_ns < ENDED_NS
        return {
            "watermark": utc(low_ns) if known else None,
            "lag_s": (now_ns - low_ns) / NS_PER_S if known else None,
            "still_s": 0.0 if low_ns == ENDED_NS else now_s - self._moved[what][1],
            "waiting": max(mark.waiting for mark in marks),
            "exact_ns": min(mark.exact_ns for mark in marks),
            "percentile_ns": low_ns,
        }


def _names(state: Path) -> set[str]:
    """Returns the ids of a state's intervals; empty if the state does not exist yet."""
    try:
        return set(Table(RealDisk(), state).look().intervals.by_id)
    except (UsageError, ComputingError):
        return set()


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def alarms(said: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yields the problems shown by one status row that need an operator."""
    if said["problem"]:
        yield _alarm(f"does not run: {said['problem']}", "fix it; it restarts as soon as its file changes")
    elif said["running"] and said["silent"]:
        are = "is" if said["silent"] == 1 else "are"
        yield _alarm(f"{said['silent']:,} of {many(said['intervals'], 'interval')} {are} silent", "see its log")
    if said["aside"]:
        why = f": {said['faults'][0]}" if said["faults"] else ""
        what = f"{many(said['aside'], 'record or timer', 'records and timers')} put aside{why}"
        yield _alarm(what, "fix the computation and restart it; records put aside are then retried")
    for each in said["sources"]:
        if each["still_s"] > STILL_S:
            held = f"; held back by {'; '.join(each['held_by'])}" if each["held_by"] else ""
            what = f"the watermark of its input {each['stream']} has not moved for {duration(each['still_s'])}{held}"
            yield _alarm(what, "find out what holds it back (photon watermark); until it moves, timers do not fire")
    stuck = [each for each in said["stages"] if each["stuck"]]
    if stuck:
        names = ", ".join(each["computation"] for each in stuck)
        why = f": {'; '.join(said['held'])}" if said["held"] else ""
        still = duration(max(each["still_s"] for each in stuck))
        what = f"{names} has not moved for {still}, though its input has{why}"
        yield _alarm(what, "see its log, and photon status compute")


def _alarm(what: str, todo: str) -> dict[str, str]:
    return {"what": what, "todo": todo}
