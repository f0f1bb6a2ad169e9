"""Decides which processes may be stopped in a running deployment, and in which order processes are restarted.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from photon.config.errors import PhotonError, UsageError
from photon.fleet.processes import DATACENTRE, READERS
from photon.supervision.states import ServiceState

JOINER, DISPATCHER, REGISTRY = "joiner", "dispatcher", "registry"
# A datacentre joins while a process of each of these kinds runs, as far as configured.
JOINING = {*READERS, "eventstore", JOINER, DATACENTRE}
# Time for a joiner to answer and write its records; it gives up earlier by itself (EngineLimits).
PATIENCE_S = 60.0


class DrainRefused(PhotonError):
    """Raised if the drain would leave a datacentre without a joiner. The message is one line."""


def kind_of(state: ServiceState) -> str:
    """Returns the kind of a process: ``joiner`` for ``joiner east-1``."""
    return state.name.partition(" ")[0]


def joiner_named(states: Sequence[ServiceState], name: str) -> ServiceState:
    """Finds a joiner by its name: ``east-1``, ``joiner east-1`` or ``joiner-east-1``. Raises UsageError."""
    joiners = [state for state in states if kind_of(state) == JOINER]
    for state in joiners:
        if name in (state.name, state.name.replace(" ", "-"), state.name.partition(" ")[2]):
            return state
    known = ", ".join(state.name.partition(" ")[2] for state in joiners) or "none"
    raise UsageError(f"{name}: no such joiner; there are: {known}{_together(states)}")


def check_drain(states: Sequence[ServiceState], joiner: ServiceState, *, last: bool) -> None:
    """Raises DrainRefused if no other joiner of its datacentre is up, unless ``last``."""
    own = joiner.datacentre
    others = [state for state in states if kind_of(state) == JOINER and state.name != joiner.name]
    if last or joiner.state == "held" or any(each.state == "up" and each.datacentre == own for each in others):
        return
    elsewhere = sorted({each.datacentre for each in others if each.state == "up"})
    reads = f"{', '.join(elsewhere)} joins the same logs" if elsewhere else "no other datacentre has a joiner here"
    raise DrainRefused(
        f"{joiner.name} is the last joiner of {own} that is up ({reads}): without it, events of {own} wait until a "
        "joiner is released; start another one, or give --last"
    )


def dispatchers_of(states: Sequence[ServiceState], datacentre: str | None) -> list[ServiceState]:
    """Returns all dispatchers of one datacentre. Raises UsageError."""
    found = [state for state in states if kind_of(state) == DISPATCHER]
    known = sorted({state.datacentre for state in found})
    if datacentre is None and len(known) == 1:
        return found
    chosen = [state for state in found if state.datacentre == datacentre]
    if not chosen:
        named = f"--datacentre {datacentre}: no dispatcher runs here"
        what = "give the dispatcher's datacentre with --datacentre" if datacentre is None else named
        raise UsageError(f"{what}; there are: {', '.join(known) or 'none'}{_together(states)}")
    return chosen


def _together(states: Sequence[ServiceState]) -> str:
    names = [f"'{state.name}'" for state in states if kind_of(state) == DATACENTRE]
    whole = ", ".join(names)
    return f"; others run in the process of their datacentre: photon hold {whole}" if names else ""


def readers_left(states: Sequence[ServiceState], paused: Sequence[ServiceState]) -> list[str]:
    names = {state.name for state in paused}
    reading = (DISPATCHER, DATACENTRE)
    left = [state for state in states if kind_of(state) in reading and state.name not in names]
    return sorted({state.datacentre for state in left if state.state == "up"})


def in_turn(states: Sequence[ServiceState], names: Collection[str]) -> list[ServiceState]:
    """Sorts processes into restart order: replicas, one datacentre after another, then all others."""

    def turn(state: ServiceState) -> tuple[bool, bool, str]:
        replica = kind_of(state) == REGISTRY
        return not replica, not state.datacentre, "" if replica else state.datacentre

    return sorted((state for state in states if state.name in names), key=turn)


def nobody_joins(states: Sequence[ServiceState], without: ServiceState) -> str:
    """Returns why no other datacentre would join while the process ``without`` is down; empty if one would, or there
    is no other."""
    missing: dict[str, str] = {}
    for each in states if kind_of(without) in JOINING else ():
        if each.datacentre == without.datacentre or kind_of(each) not in JOINING:
            continue
        alike = [other for other in states if (other.datacentre, kind_of(other)) == (each.datacentre, kind_of(each))]
        down = "" if any(other.state == "up" for other in alike) else f"{each.name} is {each.words}"
        missing[each.datacentre] = missing.get(each.datacentre) or down
    return "" if "" in missing.values() else ", ".join(missing.values())
