"""Scenarios: files with a schedule of faults, and the named ones that come with Photon.

```toml version = 1 about = "one line" seconds = 40 rate = 100

[[fault]] at = "5s" for = "10s" do = "pause" target = ["joiner east-1"] ```
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from photon.config.units import seconds
from photon.lab.chaos.api import INSTANT, NEEDS_TWO_REGIONS, Do, Step, WrongScenario
from photon.lab.chaos.topology import Topology, too_much

DIRECTORY = Path(__file__).parent / "scenarios"
SUFFIX = ".toml"
VERSION = 1
FILE_MAX = 1 << 20
FAULTS_MAX = 10_000


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    do: Do
    at: str | float
    lasts: str | float = msgspec.field(default=0.0, name="for")
    target: list[str] = []
    fault: Literal["drop", "reset", "refuse"] | None = None
    both: bool | None = None
    delay: str | float | None = None
    skew: float | None = None  # seconds, may be negative
    state: Literal["kept", "lost"] | None = None
    shards: int | None = None


class _Random(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    every: str | float = "60s"
    longest: str | float = "25s"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    about: str
    seconds: float
    rate: int = 100
    majority: bool = True  # False means that it may take down a majority of the replicas, or all pipelines
    fault: list[_Fault] = []
    random: _Random | None = None


class Scenario(msgspec.Struct, frozen=True):
    """The contents of a scenario file, checked as far as possible without a deployment."""

    name: str
    about: str
    seconds: float  # seconds for which lines are written
    rate: int  # foreign events a second
    majority: bool
    steps: tuple[Step, ...]
    every_s: float | None = None  # interval of random faults; None means only the named ones
    longest_s: float = 25.0

    def checked(self, topology: Topology, able: frozenset[Do]) -> None:
        """Raises WrongScenario for a missing target, an impossible fault, or too many faults at once."""
        for step in self.steps:
            try:
                topology.check(step)
            except WrongScenario as error:
                raise WrongScenario(f"{self.name}: at {step.at_s:g} s: {error}") from None
            if step.do not in able:
                raise WrongScenario(
                    f"{self.name}: at {step.at_s:g} s: {step.do} is not possible here: {WHY[step.do]}"
                )
        if self.majority and (why := too_much(self.steps, topology)):
            raise WrongScenario(f"{self.name}: {why}; majority = false allows it")


WHY = dict.fromkeys((Do.CUT, Do.LOSS, Do.DELAY), "the deployment file has no proxy ([wan])") | {
    Do.DISK: "the state must be on a small file system of its own; run this as root to mount one",
    Do.CLOCK: "libfaketime is missing; apt-get install faketime",
    Do.TRUNCATE: "this run does not write the logs",
    Do.AWAY: "its datacentres are not known",
    Do.RESHARD: "the deployment file is not on this machine",
    Do.RESTART: "nothing restarts processes",
    Do.KILL: "nothing restarts processes",
    Do.PAUSE: "nothing can be paused",
}


def names() -> list[str]:
    return sorted(path.name.removesuffix(SUFFIX) for path in DIRECTORY.glob(f"*{SUFFIX}"))


def load(name: str) -> Scenario:
    """Loads a scenario that comes with Photon, or a file. Raises WrongScenario."""
    path = DIRECTORY / f"{name}{SUFFIX}" if name in names() else Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WrongScenario(
            f"{name}: no such scenario or file ({error.strerror}); there are: {', '.join(names())}"
        ) from None
    if len(data) > FILE_MAX:
        raise WrongScenario(f"{path}: is larger than {FILE_MAX} bytes")
    return parse(data, path.name.removesuffix(SUFFIX), str(path))


def parse(data: bytes, name: str, where: str) -> Scenario:
    """Parses the contents of a scenario file. Raises WrongScenario."""
    try:
        table = tomllib.loads(data.decode())
        found = msgspec.convert(table, _File)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise WrongScenario(f"{where}: {error}") from None
    if not 0 < found.seconds <= 86_400 or not 1 <= found.rate <= 100_000:
        raise WrongScenario(f"{where}: seconds must be above 0 and at most 86400, and rate from 1 to 100000")
    if len(found.fault) > FAULTS_MAX:
        raise WrongScenario(f"{where}: has more than {FAULTS_MAX} faults; split it into several scenarios")
    steps = tuple(_step(each, f"{where}: fault {number}", found) for number, each in enumerate(found.fault, 1))
    if found.random is None:
        return Scenario(name, found.about, found.seconds, found.rate, found.majority, steps)
    every, longest = (
        _seconds(each, f"{where}: random.{key}")
        for key, each in (("every", found.random.every), ("longest", found.random.longest))
    )
    if every <= 0:
        raise WrongScenario(f"{where}: random.every must be more than 0 s")
    return Scenario(name, found.about, found.seconds, found.rate, found.majority, steps, every, longest)


def _seconds(value: str | float, where: str) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise WrongScenario(f"{where}: {error}") from None


_OPTIONS = {
    Do.CUT: ("fault", "both"),
    Do.DELAY: ("delay", "both"),
    Do.CLOCK: ("skew",),
    Do.AWAY: ("state",),
    Do.RESHARD: ("shards",),
}
_NEEDED = {Do.DELAY: "delay", Do.CLOCK: "skew", Do.RESHARD: "shards"}


def _step(fault: _Fault, where: str, file: _File) -> Step:
    options: dict[str, Any] = {}
    for key in ("fault", "both", "delay", "skew", "state", "shards"):
        value = getattr(fault, key)
        if value is None:
            continue
        if key not in _OPTIONS.get(fault.do, ()):
            raise WrongScenario(f"{where}: {key} does not apply to do = {fault.do!r}; leave it out")
        options[key] = _seconds(value, f"{where}: delay") if key == "delay" else value
    if (needed := _NEEDED.get(fault.do)) is not None and needed not in options:
        raise WrongScenario(f"{where}: do = {fault.do!r} needs {needed}")
    at_s, for_s = _seconds(fault.at, f"{where}: at"), _seconds(fault.lasts, f"{where}: for")
    if fault.do in INSTANT and for_s:
        raise WrongScenario(f"{where}: {fault.do} has no duration; leave out 'for'")
    if fault.do not in INSTANT and fault.do is not Do.KILL and not for_s:
        raise WrongScenario(f"{where}: {fault.do} needs 'for'")
    if at_s + for_s > file.seconds:
        raise WrongScenario(f"{where}: ends at {at_s + for_s:g} s, after the scenario's {file.seconds:g} s")
    if fault.do in NEEDS_TWO_REGIONS and len(fault.target) != 2:
        raise WrongScenario(f"{where}: {fault.do} needs two regions as its target")
    return Step(at_s, for_s, fault.do, tuple(fault.target), options)


def by_hand(do: Do, target: Sequence[str], for_s: float, **options: Any) -> Step:
    """Makes a single fault from a command line. Raises WrongScenario like ``parse``."""
    given = {key: value for key, value in options.items() if value is not None}
    fault = _Fault(do, 0.0, for_s, list(target), **given)
    return _step(fault, f"photon chaos fault {do}", _File(1, "", for_s, 1))
