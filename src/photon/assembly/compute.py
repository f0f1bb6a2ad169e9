"""``photon serve compute``: keeps the computations of a ``[compute.NAME]`` running, and reports on them.

A topology is a user's Python. ``photon compute run`` runs it in its own process, plus one for each of several
intervals; neither this process nor ``photon up`` loads it. So this process always answers, and
says in one line what is wrong. It retries an unusable file after a change, and now and then; likewise a run that
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from photon.assembly.computing_hbase import FILE_NAME as HBASE_NAME
from photon.assembly.room import Room
from photon.computing.errors import ComputingError
from photon.computing.journal import Status, put_status, read_status
from photon.computing.table import Table
from photon.computing.wire import ENDED_NS, NEVER_NS
from photon.config.clock import NS_PER_S, Clock, utc
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.roles import Role
from photon.config.stopping import first, until
from photon.config.structured import get_logger
from photon.config.words import duration, many

RETRY_S, RETRY_MOST_S = 1.0, 30.0
"""An ended run is restarted after the first delay; later each time, unless it ran for longer than the second."""
LOOK_S = 0.5
"""Time between two looks at the file meanwhile."""
STOP_S = 8.0
"""Time between SIGTERM and SIGKILL: less than ``photon up`` grants this process."""
SILENT_S = 30.0
"""An owner silent for this time is gone."""
STILL_S = 60.0
"""A watermark that has not moved for this time is an alarm."""
FAULTS_SHOWN = 5
LINE_BYTES = 16 << 10
"""Length at which a printed line is cut."""
OWN = b"photon: "
"""Prefix of our own lines; others are the user's."""

log = get_logger(__name__)


async def serve_compute(room: Room) -> None:
    """Raises UsageError, CannotListen."""
    name, own = room.table("compute", room.settings.compute)
    file, state = room.base / own.file, room.base / own.state
    watch = Watch(name, state, room.clock)
    metrics = ProcessMetrics([watch.read, free_space({"state": state})], watch.details)
    tls = None if own.address is None else room.tls(Role.COMPUTE, name)
    async with room.answering("compute", own.address, metrics, tls):
        log.info("compute serves", compute=name, file=str(file), state=str(state))
        room.up()
        command = ["compute", "run", str(file), "--state", str(state), "--processes", str(own.processes), "--quiet"]
        await _keep(room, file, [sys.executable, "-m", "photon", *command, "--stop-with-parent"], watch)


# -- keeping it running ----------------------------------------------------------------------------------------------
async def _keep(room: Room, file: Path, command: Sequence[str], watch: Watch) -> None:
    """Runs until ``stop``."""
    clock, stop, retry_s = room.clock, room.stop, RETRY_S
    while not stop.is_set():
        begun_s, version = clock.monotonic(), _version(file)
        watch.begun_ns = clock.now_ns()
        code, said = await _run(command, stop)
        if stop.is_set():
            break
        watch.problem = said if code > 0 and said else _ended(code)
        log.error("computations have ended", compute=watch.name, problem=watch.problem)
        retry_s = RETRY_S if clock.monotonic() - begun_s > RETRY_MOST_S else retry_s
        until_s, retry_s = clock.monotonic() + retry_s, min(2 * retry_s, RETRY_MOST_S)
        while clock.monotonic() < until_s and _version(file) == version and not await until(stop, LOOK_S):
            pass


def _version(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _ended(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


async def _run(command: Sequence[str], stop: asyncio.Event) -> tuple[int, str]:
    """The exit code, and the last of our lines that it printed."""
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,  # it ends with this process, however that ends
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    ending = asyncio.create_task(child.wait())
    hearing = asyncio.create_task(_heard(child.stdout))
    await first(stop, [ending])
    with contextlib.suppress(ProcessLookupError):
        if not ending.done():
            child.terminate()
            await asyncio.wait([ending], timeout=STOP_S)
        if not ending.done():
            child.kill()
    return await ending, await hearing


async def _heard(output: asyncio.StreamReader) -> str:
    rest, last = b"", ""
    while data := await output.read(LINE_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in [*lines, rest] if len(rest) > LINE_BYTES else lines:
            text = line[:LINE_BYTES].decode("utf-8", "backslashreplace")
            if line.startswith(OWN):
                last = text.removeprefix(OWN.decode())
                log.warning(last)
            elif text:
                log.info(text)
        rest = b"" if len(rest) > LINE_BYTES else rest
    return last


# -- what it says ----------------------------------------------------------------------------------------------------
class Watch:
    """The status that the owners have written, and since when it holds."""

    def __init__(self, name: str, state: Path, clock: Clock) -> None:
        self.name, self._state, self._clock = name, state, clock
        self.begun_ns = 0
        """Start time of the current process."""
        self.problem = ""
        """Why the previous process ended."""
        self._moved: dict[str, tuple[int, float]] = {}
        """Source or computation -> its watermark, and since when (monotonic)."""

    async def read(self, into: Readings) -> None:
        """Writes metrics. Raises OSError."""
        found, said = await asyncio.to_thread(self.look)
        put_status(into, [each for each in found if self._speaks(each)])
        into.put_all("photon_computing", {"running": said["running"], "alarms": len(said["alarms"])})
        for each in said["stages"]:
            labels = {"topology": said["topology"], "computation": each["computation"]}
            into.put("photon_computing_still_seconds", each["still_s"], **labels)
            if each["lag_s"] is not None:
                into.put("photon_computing_lag_seconds", each["lag_s"], **labels)

    async def details(self) -> Mapping[str, Any]:
        """Raises OSError."""
        return {"computing": (await asyncio.to_thread(self.look))[1]}

    def look(self) -> tuple[list[Status], dict[str, Any]]:
        """All owners, and the row of the status page (docs/watching.md#photon-status). Raises OSError."""
        names = _names(self._state)
        found = [each for each in read_status(RealDisk(), self._state) if each.interval in names] if names else []
        if (self._state / HBASE_NAME).exists():  # the others are on other machines
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
        """The sources, and the computations, producers before consumers. A watermark is that of the owner furthest
        behind; there is none while an owner has not reported yet."""
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
    """Intervals of a state; empty before it has begun."""
    try:
        return set(Table(RealDisk(), state).look().intervals.by_id)
    except (UsageError, ComputingError):
        return set()


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def alarms(said: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Problems in a row that need an operator."""
    if said["problem"]:
        yield _alarm(f"does not run: {said['problem']}", "fix it: it is tried again at once when its file changes")
    elif said["running"] and said["silent"]:
        yield _alarm(f"{many(said['silent'], 'interval')} of {said['intervals']} say nothing", "see its log")
    if said["aside"]:
        why = f": {said['faults'][0]}" if said["faults"] else ""
        what = f"{many(said['aside'], 'record or timer', 'records and timers')} put aside{why}"
        yield _alarm(what, "fix the computation and restart it: what is put aside is tried again")
    for each in said["sources"]:
        if each["still_s"] > STILL_S:
            held = f"; held back by {'; '.join(each['held_by'])}" if each["held_by"] else ""
            what = f"the watermark of its input {each['stream']} has not moved for {duration(each['still_s'])}{held}"
            yield _alarm(what, "see to what holds it back: photon watermark; timers wait for it")
    stuck = [each for each in said["stages"] if each["stuck"]]
    if stuck:
        names = ", ".join(each["computation"] for each in stuck)
        why = f": {'; '.join(said['held'])}" if said["held"] else ""
        still = duration(max(each["still_s"] for each in stuck))
        what = f"{names} has not moved for {still}, though its input has{why}"
        yield _alarm(what, "see its log, and what it is busy with: photon status compute")


def _alarm(what: str, todo: str) -> dict[str, str]:
    return {"what": what, "todo": todo}
