"""Processes that may be taken out of a running deployment, and the meaning of a name."""

from __future__ import annotations

import pytest

from photon.config.errors import UsageError
from photon.supervision.draining import (
    DrainRefused,
    check_drain,
    dispatchers_of,
    in_turn,
    joiner_named,
    nobody_joins,
    readers_left,
)
from photon.supervision.states import Condition, ServiceState


def state(name: str, datacentre: str, condition: Condition = "up") -> ServiceState:
    return ServiceState(name=name, datacentre=datacentre, pid=1, state=condition)


EAST = [state("joiner east-1", "east"), state("joiner east-2", "east"), state("dispatcher east", "east")]
WEST = [state("joiner west-1", "west"), state("dispatcher west w1", "west"), state("dispatcher west w2", "west")]


@pytest.mark.parametrize("name", ["east-1", "joiner east-1", "joiner-east-1"])
def test_a_joiner_is_known_by_slot_and_process(name: str) -> None:
    joiner = joiner_named([*EAST, *WEST], name)
    assert joiner.name == "joiner east-1"
    check_drain([*EAST, *WEST], joiner, last=False)


def test_no_such_joiner() -> None:
    with pytest.raises(UsageError, match=r"east-7: no such joiner; there are: east-1, east-2, west-1"):
        joiner_named([*EAST, *WEST], "east-7")
    with pytest.raises(UsageError, match="dispatcher east: no such joiner"):
        joiner_named(EAST, "dispatcher east")


@pytest.mark.parametrize("other", ["held", "starting", "silent", "failing", "not serving", "restarting", "paused"])
def test_the_last_one_up_is_not_drained_without_a_word(other: Condition) -> None:
    states = [EAST[0], state("joiner east-2", "east", other), *WEST]
    with pytest.raises(DrainRefused, match=r"last joiner of east that is up \(west joins .*or give --last"):
        check_drain(states, EAST[0], last=False)
    check_drain(states, EAST[0], last=True)
    with pytest.raises(DrainRefused, match="no other datacentre has a joiner here"):
        check_drain(EAST[:1], EAST[0], last=False)
    check_drain(states, state("joiner east-2", "east", "held"), last=False)


def test_a_dispatcher_is_all_its_workers() -> None:
    assert [each.name for each in dispatchers_of([*EAST, *WEST], "west")] == [
        "dispatcher west w1",
        "dispatcher west w2",
    ]
    assert [each.name for each in dispatchers_of(EAST, None)] == ["dispatcher east"]
    with pytest.raises(UsageError, match="give the dispatcher's datacentre with --datacentre; there are: east, west"):
        dispatchers_of([*EAST, *WEST], None)
    with pytest.raises(UsageError, match="--datacentre north: no dispatcher runs here"):
        dispatchers_of(EAST, "north")
    assert readers_left([*EAST, *WEST], WEST[1:]) == ["east"]
    together = state("datacentre north", "north")
    assert readers_left([*EAST, *WEST, together], WEST[1:]) == ["east", "north"]
    with pytest.raises(UsageError, match=r"east, west; others run in .*: photon hold 'datacentre north'"):
        dispatchers_of([*EAST, *WEST, together], "north")
    assert readers_left(EAST, EAST[2:]) == []


REPLICAS = [state("registry r1", "east"), state("registry r2", "west"), state("registry r3", "")]


def test_restarts_are_of_replicas_then_of_one_datacentre_after_the_other() -> None:
    states = [state("wan", ""), *REPLICAS, EAST[0], WEST[0], EAST[1], WEST[1], EAST[2], state("status west", "west")]
    names = {each.name for each in states} - {"joiner east-2"}
    assert [each.name for each in in_turn(states, names)] == [
        "registry r1", "registry r2", "registry r3", "joiner east-1", "dispatcher east",
        "joiner west-1", "dispatcher west w1", "status west", "wan",
    ]  # fmt: skip


def test_a_process_goes_only_while_another_datacentre_joins() -> None:
    held, store = state("joiner west-1", "west", "held"), state("eventstore west", "west", "starting")
    one_of_two = state("joiner west-2", "west")
    assert nobody_joins([*EAST, *WEST], EAST[0]) == ""
    assert nobody_joins(EAST, EAST[0]) == ""  # there is no other
    assert nobody_joins([*EAST, held, *WEST[1:]], EAST[2]) == "joiner west-1 is held"
    assert nobody_joins([*EAST, held, one_of_two, *WEST[1:]], EAST[2]) == ""
    assert nobody_joins([*EAST, *WEST, store], EAST[0]) == "eventstore west is starting"
    assert nobody_joins([*EAST, *WEST, state("sink lake", "west", "failing")], EAST[0]) == ""
    north = state("datacentre north", "north")
    assert nobody_joins([*EAST, *WEST, store, north], EAST[0]) == ""
    for harmless in (REPLICAS[0], state("status east", "east"), state("wan", "")):
        assert nobody_joins([*EAST, held, harmless], harmless) == ""
