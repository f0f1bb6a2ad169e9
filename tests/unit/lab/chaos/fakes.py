"""A deployment that only records the actions on it."""

from collections.abc import Mapping, Sequence

from photon.lab.chaos.api import ChaosFailed, Do, ProcessNow
from photon.lab.wan.links import Change, DirectionNow, Fault
from tests.unit.lab.chaos.places import TOPOLOGY


class FakeTarget:
    """All processes are always up; ``failing``: how often each call fails before it works."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: dict[str, int] = {}
        self.pids = {name: number for number, name in enumerate(TOPOLOGY.processes, 100)}
        self.links = {(a, b): DirectionNow(a, b, 0.05) for a in TOPOLOGY.regions for b in TOPOLOGY.regions if a != b}
        self.able: frozenset[Do] = frozenset(Do)
        self.fillable: list[str] = []

    def _call(self, what: str, *about: object) -> None:
        if self.failing.get(what, 0):
            self.failing[what] -= 1
            raise ChaosFailed(f"{what} fails")
        self.calls.append(" ".join([what, *map(str, about)]))

    async def processes(self) -> Mapping[str, ProcessNow]:
        return {name: ProcessNow(True, pid) for name, pid in self.pids.items()}

    async def kill(self, names: Sequence[str], *, hold: bool) -> None:
        self._call("kill", *names, "hold" if hold else "")

    async def release(self, names: Sequence[str]) -> None:
        self._call("release", *names)

    async def pause(self, names: Sequence[str]) -> None:
        self._call("pause", *names)

    async def resume(self, names: Sequence[str]) -> None:
        self._call("resume", *names)

    async def restart(self, name: str) -> None:
        self._call("restart", name)
        self.pids[name] += 1000

    async def directions(self) -> Sequence[DirectionNow]:
        return list(self.links.values())

    async def change(self, changes: Sequence[Change]) -> None:
        self._call("change")
        for each in changes:
            link = each.source, each.destination
            delay_s = self.links[link].delay_s if each.delay_s is None else each.delay_s
            fault = self.links[link].fault if each.fault is None else each.fault
            self.links[link] = DirectionNow(*link, delay_s, fault)

    async def fill(self, name: str) -> None:
        self._call("fill", name)

    async def empty(self, name: str) -> None:
        self._call("empty", name)

    async def skew(self, name: str, seconds: float | None) -> None:
        self._call("skew", name, seconds)
        self.pids[name] += 1000

    async def wipe(self, datacentre: str) -> None:
        self._call("wipe", datacentre)

    async def photon(self, arguments: Sequence[str]) -> str:
        self._call("photon", *arguments)
        return "done"

    def faults(self) -> dict[str, str]:
        """Faults of the links that have one."""
        return {f"{a} {b}": each.fault.name for (a, b), each in self.links.items() if each.fault is not Fault.NONE}


class FakeLogs:
    """Likewise."""

    def __init__(self, target: FakeTarget) -> None:
        self._target = target

    def hold(self, datacentre: str) -> None:
        self._target._call("hold", datacentre)

    def flow(self, datacentre: str) -> None:
        self._target._call("flow", datacentre)

    def truncate(self, datacentre: str) -> str:
        self._target._call("truncate", datacentre)
        return "cut"

    def restore(self, datacentre: str) -> None:
        self._target._call("restore", datacentre)
