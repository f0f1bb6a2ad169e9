"""Directions and their changes: all or nothing."""

import pytest

from photon.lab.wan.links import DELAY_S_MAX, Change, Direction, DirectionNow, Fault, LinkTable
from photon.supervision.routes import Route

ROUTES = [
    Route("127.0.0.1:1", "east", "west", "127.0.0.1:2"),
    Route("127.0.0.1:3", "east", "west", "127.0.0.1:4"),
    Route("127.0.0.1:5", "west", "north", "127.0.0.1:6"),
]


def test_each_pair_of_regions_has_both_directions_once() -> None:
    table = LinkTable(ROUTES, 0.015)
    pairs = [("east", "west"), ("north", "west"), ("west", "east"), ("west", "north")]
    assert [(each.source, each.destination) for each in table.now()] == pairs
    assert {each.delay_s for each in table.now()} == {0.015}
    assert all(isinstance(each, Direction) for each in table.now())


def test_a_change_concerns_its_direction_and_what_it_names() -> None:
    table = LinkTable(ROUTES, 0.01)
    assert table.apply([Change("east", "west", delay_s=0.2), Change("west", "east", fault=Fault.DROP)]) == ""
    now = {(each.source, each.destination): each for each in table.now()}
    assert now["east", "west"] == DirectionNow("east", "west", 0.2, Fault.NONE)
    assert now["west", "east"] == DirectionNow("west", "east", 0.01, Fault.DROP)
    assert now["west", "north"] == DirectionNow("west", "north", 0.01, Fault.NONE)


def test_later_changes_of_one_request_win() -> None:
    table = LinkTable(ROUTES)
    assert table.apply([Change("east", "west", 1.0), Change("east", "west", 2.0)]) == ""
    assert table.link("east", "west").delay_s == 2.0


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Change("east", "north"), "no connections go from 'east' to 'north'; directions: east to west,"),
        (Change("east", "mars"), "'mars'"),
        (Change("west", "east", delay_s=DELAY_S_MAX + 0.001), "outside 0 to 60 s"),
        (Change("west", "east", delay_s=-0.001), "outside 0 to 60 s"),
        (Change("west", "east", delay_s=float("nan")), "outside 0 to 60 s"),
    ],
)
def test_one_bad_change_and_none_is_made(bad: Change, said: str) -> None:
    table = LinkTable(ROUTES)
    before = table.now()
    error = table.apply([Change("east", "west", 1.0, Fault.DROP), bad])
    assert said in error
    assert "\n" not in error
    assert table.now() == before


def test_without_routes_there_are_no_directions() -> None:
    table = LinkTable([])
    assert table.now() == []
    assert "directions: none" in table.apply([Change("east", "west")])
