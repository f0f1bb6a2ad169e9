"""The regions and datacentres of a deployment's processes, as faults need them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from photon.config.settings import Settings
from photon.fleet.processes import stages
from photon.lab.chaos.api import LEADER, NEEDS_TWO_REGIONS, Do, Step, WrongScenario

REGISTRY = "registry "
RETURN_S = 8.0  # time after a fault during which its replicas may be catching up


@dataclass(frozen=True, slots=True)
class Topology:
    replicas: Mapping[str, str]  # process name -> region
    datacentres: Mapping[str, str]  # datacentre of a pipeline -> region
    processes: Mapping[str, str]  # name -> datacentre with which it is lost, empty if none; without the proxy
    regions: tuple[str, ...]

    @property
    def spare(self) -> int:
        return (len(self.replicas) - 1) // 2

    def of_datacentre(self, datacentre: str) -> list[str]:
        return [name for name, where in self.processes.items() if where == datacentre]

    def impaired(self, step: Step) -> frozenset[str]:
        """The registry replicas that a fault may separate from the others, in the worst case."""
        if step.do in (Do.CUT, Do.LOSS):
            sides = [{n for n, region in self.replicas.items() if region == each} for each in step.target]
            if len(sides) == 1:
                sides.append(set(self.replicas) - sides[0])
            return frozenset(sorted(sides, key=len)[0])
        if step.do is Do.AWAY:
            return frozenset(name for name in self.of_datacentre(step.target[0]) if name in self.replicas)
        if step.do in (Do.KILL, Do.PAUSE, Do.DISK, Do.CLOCK):
            # The leader at that time may be a replica that is not named elsewhere.
            return frozenset(set(step.target) & {*self.replicas, LEADER})
        if step.do is Do.RESTART:  # processes restart one after another
            return frozenset(sorted(set(step.target) & {*self.replicas, LEADER})[:1])
        return frozenset()

    def check(self, step: Step) -> None:
        """Raises WrongScenario if a target of the fault does not exist."""
        if step.do in (Do.CUT, Do.LOSS, Do.DELAY):
            known: Sequence[str] = self.regions
            count = {2} if step.do in NEEDS_TWO_REGIONS else {1, 2}
            what = "region"
        elif step.do in (Do.AWAY, Do.TRUNCATE):
            known, count, what = list(self.datacentres), {1}, "datacentre"
        elif step.do is Do.RESHARD:
            known, count, what = [], {0}, "target"
        else:
            known, count, what = [*self.processes, LEADER], set(range(1, len(self.processes) + 1)), "process"
        for name in step.target:
            if name not in known:
                raise WrongScenario(f"{step.do}: no {what} {name!r}; there are: {', '.join(known) or 'none'}")
        if len(step.target) not in count:
            few = " or ".join(map(str, sorted(count)[:2]))
            raise WrongScenario(f"{step.do}: the number of targets ({what}) is {len(step.target)}, but must be {few}")
        if len(set(step.target)) < len(step.target):
            raise WrongScenario(f"{step.do}: names {step.target[0]} twice")


def topology_of(settings: Settings) -> Topology:
    """The topology of a deployment file, with the names that ``photon status processes`` shows."""
    found = [each for stage in stages(settings) for each in stage if each.kind != "wan"]
    replicas = {each.label: each.region for each in found if each.kind == "registry"}
    datacentres = {name: settings.region(name) for name in settings.datacentre}
    regions = tuple(sorted({region for region in (*replicas.values(), *datacentres.values()) if region}))
    return Topology(replicas, datacentres, {each.label: each.datacentre for each in found}, regions)


def too_much(steps: Sequence[Step], topology: Topology) -> str:
    """Returns in one line why a plan disrupts too much; empty if it always leaves a majority of the replicas and one
    pipeline unaffected."""
    for step in sorted(steps, key=lambda each: each.at_s):
        together = [each for each in steps if each.at_s <= step.at_s < each.end_s + RETURN_S]
        lost = frozenset[str]().union(*(topology.impaired(each) for each in together))
        if len(lost) > topology.spare:
            return (
                f"at {step.at_s:.1f} s faults affect {len(lost)} of {len(topology.replicas)} replicas "
                f"({', '.join(sorted(lost))}); at most {topology.spare} may be affected at once"
            )
        away = {each.target[0] for each in together if each.do is Do.AWAY}
        if away >= set(topology.datacentres):
            return f"at {step.at_s:.1f} s faults affect the pipelines of all datacentres: {', '.join(sorted(away))}"
    return ""
