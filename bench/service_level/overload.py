"""Overload: measures the most a deployment joins, then offers it twice as much for minutes.

Two datacentres, five replicas 100 ms apart; both datacentres read the same logs. Every process has the memory limit
that it has in a container, as a limit on its data (RLIMIT_DATA), which counts reserved memory and not only resident
memory: beyond it an allocation fails, and the process with it. Writers of logs are not refused: logs grow, and the
deployment's memory must not. Afterwards it catches up, and each click has come out once.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.catch_up import scratch
from bench.deployed import Deployed, Feeding, Watch, deployed
from bench.live import figures
from bench.results import BenchmarkFailed, machine
from bench.service_level.day import began_of
from bench.service_level.rows import OVERLOAD, Row
from photon import __version__
from photon.config.errors import PhotonError
from photon.fleet.ledger import read_ledger
from photon.fleet.numbers import Numbers
from photon.fleet.polling import gathered
from photon.fleet.processes import processes
from photon.lab.chaos.report import read_process
from photon.lab.chaos.site import CACHE, REPLICAS, ROUND_TRIP_S
from photon.lab.demo.deployment import DATACENTRES
from photon.supervision.control import Request
from photon.supervision.detached import ask_patiently
from photon.supervision.services import MEMORY

PROBE_RATE, PROBE_S = 12_000.0, 40.0  # clicks a second, more than two cores bear; seconds for which they are offered
PER_CLICK = 2
TIMES = 2.0
LOOK_S = 2.0
OTHERS = 384  # limit of processes that MEMORY does not name
PATIENCE = 4.0  # time allowed for catching up, in multiples of the overload itself
PATIENCE_S = 240.0  # minimum of that time


@dataclass(slots=True)
class Life:
    """One process over its restarts."""

    limit: int  # bytes of data
    limited: int | None = None  # the process that has the limit
    resident: int = 0  # highest value seen, bytes
    restarts: int = 0
    up: bool = False  # state at the last look


class Look:
    """Sets the processes' limits and observes them."""

    def __init__(self, running: Deployed) -> None:
        self._running = running
        self._began = time.monotonic()
        self._asked = [each for each in processes(running.demo.deployment.settings) if each.kind == "dispatcher"]
        self.lives: dict[str, Life] = {}
        self.columns: dict[str, list[float]] = {"at": [], "written": [], "joined": [], "lag": []}

    def now(self, written: float) -> None:
        """Observes once. ``written``: number of clicks written so far."""
        kinds: dict[str, int] = {}
        for each in ask_patiently(self._running.demo.deployment.run, Request(do="ps"), 30.0).services:
            kind = each.name.split()[0]
            life = self.lives.setdefault(each.name, Life(MEMORY.get(kind, OTHERS) << 20))
            life.restarts, life.up = each.restarts, each.pid is not None
            if each.pid is None or (sample := read_process(each.pid, 0.0)) is None:
                continue
            if each.pid != life.limited:
                with suppress(ProcessLookupError):  # it has just ended: seen at the next look
                    resource.prlimit(each.pid, resource.RLIMIT_DATA, (life.limit, life.limit))
                life.limited = each.pid
            life.resident = max(life.resident, sample.memory)
            kinds[kind] = max(kinds.get(kind, 0), sample.memory)
        heard = Numbers(asyncio.run(gathered(None, self._asked)))
        columns = self.columns
        columns["at"].append(round(time.monotonic() - self._began, 1))
        columns["written"].append(round(written))
        columns["joined"].append(joined(self._running))
        columns["lag"].append(heard.max("photon_dispatcher_lag_bytes"))
        for kind, most in kinds.items():
            self.columns.setdefault(f"mib {kind}", []).append(round(most / 2**20))


def joined(running: Deployed) -> int:
    """Returns the number of clicks joined in all datacentres, from their ledgers."""
    return sum(read_ledger(place.state)["joined"] for place in running.demo.places.values())


def offer(rate: float, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Offers ``rate`` clicks a second to a new deployment, and waits until all are joined. Raises BenchmarkFailed."""
    with ExitStack() as stack:
        running = stack.enter_context(
            deployed(
                stack.enter_context(scratch()), shards=2, together=True, round_trip_s=ROUND_TRIP_S,
                datacentres=DATACENTRES, replicas=REPLICAS, cache=CACHE,
            )
        )  # fmt: skip
        watches = [Watch(running, each) for each in DATACENTRES]
        for watch in watches:
            stack.callback(watch.kill)
        look = Look(running)
        look.now(0)
        feeding = Feeding(running, rate=rate, seconds=seconds, per_click=PER_CLICK)
        stack.callback(feeding.kill)
        began = time.monotonic()
        while feeding.running():
            look.now(min(1.0, (time.monotonic() - began) / seconds) * rate * seconds)
            time.sleep(LOOK_S)
        feeding.end()
        fed_s = time.monotonic() - began
        fed = dict(np.load(feeding.file))
        wanted = int((fed["ready_ns"] > 0).sum())
        in_time = joined(running)
        say(f"{wanted:,} clicks in {fed_s:.0f} s, {in_time:,} joined meanwhile; waiting for the others")
        deadline = time.monotonic() + max(PATIENCE_S, PATIENCE * seconds)
        while joined(running) < wanted and time.monotonic() < deadline:
            look.now(len(fed["ready_ns"]))
            time.sleep(LOOK_S)
        caught_up_s = time.monotonic() - began - fed_s
        time.sleep(LOOK_S)
        for watch in watches:
            watch.end()
        seen = [dict(np.load(watch.file)) for watch in watches]
        found = figures(fed, {name: np.concatenate([each[name] for each in seen]) for name in seen[0]}, rate=rate)
        return {
            "offered": len(fed["ready_ns"]), "wanted": wanted, "fed_s": round(fed_s, 1), "joined_meanwhile": in_time,
            "caught_up_s": round(caught_up_s, 1), "lost": found["lost"],
            "p50_p99_ms": [found["p50_ms"], found["p99_ms"]],
            "columns": look.columns,
            "processes": {
                name: {"limit_mib": life.limit >> 20, "resident_mib": life.resident >> 20,
                       "restarts": life.restarts, "up": life.up}
                for name, life in look.lives.items()
            },
        }  # fmt: skip


def problems(found: Mapping[str, Any]) -> list[str]:
    """Returns the broken invariants. Pure."""
    said = [f"{found['lost']:,.0f} clicks were not joined"] if found["lost"] else []
    for name, each in found["processes"].items():
        if each["restarts"]:
            said.append(f"{name} ended {each['restarts']} times")
        if not each["up"]:
            said.append(f"{name} is not running at the end")
        if each["resident_mib"] > each["limit_mib"]:
            said.append(f"{name} took {each['resident_mib']} MiB, above its limit of {each['limit_mib']}")
    return said


def run(*, minutes: float, rate: float | None, say: Callable[[str], None]) -> Row:
    """Measures an overload. ``rate``: the sustained load in clicks a second; ``None`` measures it first. Raises
    BenchmarkFailed."""
    load, began_us = os.getloadavg()[0], time.time_ns() // 1000
    try:
        if rate is None:
            probe = offer(PROBE_RATE, PROBE_S, say)
            rate = probe["joined_meanwhile"] / probe["fed_s"]
            say(f"what is borne: {rate:,.0f} clicks/s")
        found = offer(TIMES * rate, minutes * 60, say)
    except PhotonError as error:
        raise BenchmarkFailed(str(error)) from None
    return {
        "kind": OVERLOAD, "id": f"{began_us // 1_000_000}", "began": began_of(began_us), "photon": __version__,
        "machine": machine(), "minutes": minutes, "borne": round(rate), "rate": round(TIMES * rate),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)], **found, "problems": problems(found),
    }  # fmt: skip
