"""Applies faults to a target and reverts them; remembers unhealed ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from photon.config.words import many
from photon.lab.chaos.api import LEADER, ChaosFailed, Do, Step, Target
from photon.lab.chaos.topology import Topology
from photon.lab.wan.links import DELAY_S_MAX, Change, Fault

LOSS_EVERY_S = 0.7  # seconds between two resets of all connections of a link
LOSS_S = 0.15
ELECTED_S = 30.0
UP_S = 120.0
POLL_S = 0.2
HEAL_TRIES = 60  # tries of one step of healing, as the proxy may still be starting
HEAL_WAIT_S = 0.5
SAME_S = 1e-6  # delays that differ by less are equal


class Logs(Protocol):
    def hold(self, datacentre: str) -> None:
        """Holds back all lines for a datacentre until ``flow``."""

    def flow(self, datacentre: str) -> None:
        """Releases the lines held back."""

    def truncate(self, datacentre: str) -> str:
        """Cuts the end off the newest log and keeps it; returns a human-readable description."""

    def restore(self, datacentre: str) -> None:
        """Puts the cut-off end back."""


class Faults:
    """Begins and ends steps. ``_undo`` has the reversal of each active fault."""

    def __init__(
        self, target: Target, topology: Topology, leader: Callable[[], Awaitable[str | None]], logs: Logs | None
    ) -> None:
        self._target = target
        self._topology = topology
        self._leader = leader
        self._logs = logs
        self._undo: dict[int, list[Callable[[], Awaitable[None]]]] = {}
        self._pulses: dict[int, asyncio.Task[None]] = {}

    async def begin(self, number: int, step: Step) -> str:
        """Applies a step; returns its targets for the history. Before it raises ChaosFailed it reverts a partly
        applied fault, so that none outlasts its step; if reverting fails too, ``heal`` tries again."""
        try:
            return await self._begin(number, step)
        except (ChaosFailed, TimeoutError):
            with contextlib.suppress(ChaosFailed, TimeoutError):
                await self.end(number)
            raise

    async def _begin(self, number: int, step: Step) -> str:
        names = await self._resolved(step)
        undo = self._undo.setdefault(number, [])
        match step.do:
            case Do.KILL:
                await self._kill(names, step, undo)
            case Do.PAUSE:
                undo.append(lambda: self._target.resume(names))
                await self._target.pause(names)
            case Do.CUT | Do.LOSS | Do.DELAY:
                await self._network(number, step, undo)
            case Do.DISK:
                for name in names:
                    undo.append(lambda name=name: self._target.empty(name))  # type: ignore[misc]
                    await self._target.fill(name)
            case Do.CLOCK:
                for name in names:
                    undo.append(lambda name=name: self._target.skew(name, None))  # type: ignore[misc]
                    before = (await self._target.processes())[name].pid
                    await self._target.skew(name, float(step.options["skew"]))
                    await self._until_up([name], lambda now, old=before: now != old)  # type: ignore[misc]
            case Do.AWAY:
                return await self._away(step, undo)
            case Do.TRUNCATE:
                return self._truncate(step, undo)
            case Do.RESTART:
                await self.rolling(names)
            case Do.RESHARD:
                return await self._target.photon(["registry", "reshard", "--shards", str(step.options["shards"])])
        return ", ".join(names)

    async def end(self, number: int) -> None:
        """Reverts a step. If it raises ChaosFailed, ``heal`` tries again."""
        if (pulse := self._pulses.pop(number, None)) is not None:
            pulse.cancel()
            await asyncio.gather(pulse, return_exceptions=True)
        undo = self._undo.get(number, [])
        while undo:
            await undo[-1]()
            undo.pop()
        self._undo.pop(number, None)

    async def heal(self) -> list[str]:
        """Reverts all remaining faults, with many retries; returns the faults that it could not revert."""
        problems = []
        for number in list(self._undo):
            for attempt in range(HEAL_TRIES):
                try:
                    await self.end(number)
                    break
                except (ChaosFailed, TimeoutError) as error:
                    if attempt == HEAL_TRIES - 1:
                        problems.append(str(error))
                    await asyncio.sleep(HEAL_WAIT_S)
        return problems

    async def rolling(self, names: Sequence[str]) -> None:
        for name in names:
            before = (await self._target.processes())[name]
            await self._target.restart(name)
            await self._until_up([name], lambda now, old=before.pid: now != old)  # type: ignore[misc]

    async def _until_up(self, names: Sequence[str], fresh: Callable[[int | None], bool] = lambda pid: True) -> None:
        try:
            async with asyncio.timeout(UP_S):
                while True:
                    found = await self._target.processes()
                    if all(found[name].up and fresh(found[name].pid) for name in names):
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ChaosFailed(f"{', '.join(names)} is not up again after {UP_S:g} s") from None

    async def _resolved(self, step: Step) -> list[str]:
        if LEADER not in step.target:
            return list(step.target)
        try:
            async with asyncio.timeout(ELECTED_S):
                while (leader := await self._leader()) is None:  # noqa: ASYNC110 an election may be under way
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ChaosFailed(f"the registry's first shard has had no leader for {ELECTED_S:g} s") from None
        return [leader if name == LEADER else name for name in step.target]

    async def _kill(self, names: Sequence[str], step: Step, undo: list[Callable[[], Awaitable[None]]]) -> None:
        if step.for_s:
            undo.append(lambda: self._target.release(names))
        await self._target.kill(names, hold=step.for_s > 0)

    async def _away(self, step: Step, undo: list[Callable[[], Awaitable[None]]]) -> str:
        [datacentre] = step.target
        names = self._topology.of_datacentre(datacentre)
        lost = step.options.get("state") == "lost"
        undo.append(lambda: self._return(datacentre, names, lost=lost))
        if self._logs is not None:
            logs = self._logs
            flow = lambda: _soon(lambda: logs.flow(datacentre))  # noqa: E731
            # If its state is gone, events that arrive while it is away are skipped too.
            undo.insert(len(undo) if lost else 0, flow)
            logs.hold(datacentre)
        await self._target.kill(names, hold=True)
        return f"{datacentre}: {many(len(names), 'process', 'processes')}"

    async def _return(self, datacentre: str, names: Sequence[str], *, lost: bool) -> None:
        if lost:
            await self._target.wipe(datacentre)
            await self._target.release([name for name in names if not name.startswith("dispatcher")])
            # Its past events are left to the others, which have read them.
            await self._target.photon(["dispatcher", "skip", "--datacentre", datacentre, "--to", "now", "--yes"])
        await self._target.release(names)

    def _truncate(self, step: Step, undo: list[Callable[[], Awaitable[None]]]) -> str:
        if self._logs is None:
            raise ChaosFailed("truncate: this run does not write the logs")
        [datacentre], logs = step.target, self._logs
        undo.append(lambda: _soon(lambda: logs.restore(datacentre)))
        return logs.truncate(datacentre)

    async def _network(self, number: int, step: Step, undo: list[Callable[[], Awaitable[None]]]) -> None:
        pairs = self._pairs(step)
        now = {(each.source, each.destination): each for each in await self._target.directions()}
        for pair in pairs:
            if pair not in now:
                raise ChaosFailed(f"{step.do}: no route leads from {pair[0]!r} to {pair[1]!r}")
        if step.do is Do.DELAY:
            back = [Change(*pair, delay_s=now[pair].delay_s) for pair in pairs]
            more = float(step.options["delay"])
            wanted = [Change(*pair, delay_s=min(DELAY_S_MAX, now[pair].delay_s + more)) for pair in pairs]
        else:
            back = [Change(*pair, fault=Fault.NONE) for pair in pairs]
            fault = Fault[str(step.options.get("fault", "drop")).upper()] if step.do is Do.CUT else Fault.RESET
            wanted = [Change(*pair, fault=fault) for pair in pairs]
        undo.append(lambda: self._target.change(back))
        await self._target.change(wanted)
        if step.do is Do.LOSS:
            self._pulses[number] = asyncio.create_task(self._pulse(wanted, back))

    async def _pulse(self, wanted: Sequence[Change], back: Sequence[Change]) -> None:
        while True:
            with contextlib.suppress(ChaosFailed):  # the proxy may be down
                await self._target.change(wanted)
                await asyncio.sleep(LOSS_S)
                await self._target.change(back)
            await asyncio.sleep(LOSS_EVERY_S)

    def _pairs(self, step: Step) -> list[tuple[str, str]]:
        source = step.target[0]
        others = step.target[1:] or tuple(each for each in self._topology.regions if each != source)
        pairs = [(source, other) for other in others]
        return pairs + ([(other, source) for other in others] if step.options.get("both", True) else [])


async def _soon(what: Callable[[], None]) -> None:
    what()


async def heal(target: Target, names: Iterable[str], round_trip_s: float | None) -> list[str]:
    """Reverts all faults; returns a line for each. ``names``: processes whose disk may be full; ``round_trip_s``: the
    normal round trip between regions, ``None`` without a proxy. Raises ChaosFailed; it may be repeated."""
    said = []
    processes = await target.processes()
    if paused := [name for name, now in processes.items() if now.detail == "paused"]:
        await target.resume(paused)
        said.append(f"resumed: {', '.join(paused)}")
    skewed = [name for name, now in processes.items() if now.skewed]
    if held := [name for name, now in processes.items() if now.detail == "held" and name not in skewed]:
        await target.release(held)
        said.append(f"restarted: {', '.join(held)}")
    for name in skewed:  # also starts a held process
        await target.skew(name, None)
    if skewed:
        said.append(f"restarted with the right clock: {', '.join(skewed)}")
    if round_trip_s is not None and (changes := await _changes(target, round_trip_s / 2)):
        await target.change(changes)
        said.append(f"{many(len(changes), 'direction')} between regions restored")
    for name in names:
        await target.empty(name)
    return said


async def _changes(target: Target, delay_s: float) -> list[Change]:
    """Returns the changes that restore all directions that differ from a state without faults."""
    return [
        Change(each.source, each.destination, delay_s, Fault.NONE)
        for each in await target.directions()
        if each.fault is not Fault.NONE or abs(each.delay_s - delay_s) > SAME_S
    ]
