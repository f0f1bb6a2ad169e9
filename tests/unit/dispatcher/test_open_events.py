"""The table of events in memory: a row is reused, and nothing of its previous event remains in it."""

from __future__ import annotations

import os
import random

import pytest

from photon.adapters.contract import LogFile
from photon.batch.events import Events
from photon.dispatcher.events import Stretch
from photon.dispatcher.homes import NOBODY
from photon.dispatcher.open_events import OpenEvent, OpenEvents, rows_of
from photon.joiner.api import ForeignEvent, Outcome

FILES = [LogFile(name) for name in ("a.log", "b.log")]


def event(n: int) -> ForeignEvent:
    word = b"%d" % n + b"\0" * (n % 3)  # ends of a field of fixed width would be lost
    return ForeignEvent(b"id" + word, b"%16d" % n, n - 50, word, b"r" * (n % 7), FILES[n % 2], n, 5 * n, n % 4)


def stretch(n: int) -> Stretch:
    return Stretch(f"log{n}", FILES[0], 0, 0, 0, 0.0)


def is_new(found: OpenEvent) -> bool:
    return found[2:] == (0, 0, False, False, False, None)


@pytest.mark.parametrize("seed", range(10 if os.environ.get("PHOTON_FULL") else 4))
def test_whatever_comes_and_goes_each_row_is_its_events(seed: int) -> None:
    draw = random.Random(seed)
    table, stretches = OpenEvents(), [stretch(n) for n in range(3)]
    held: dict[int, tuple[ForeignEvent, Stretch | None, int]] = {}  # by row
    number = 0
    for now_ns in range(1, 60):
        of = draw.choice([*stretches, None])
        events = [event(number + n) for n in range(draw.choice([0, 1, 30, 700]))]
        number += len(events)
        rows = table.add(Events.of(events), of, now_ns)
        if of is not None:
            of.rows.append(rows)
        assert not held.keys() & set(rows.tolist())
        held |= {row: (each, of, now_ns) for row, each in zip(rows.tolist(), events, strict=True)}
        assert all(map(is_new, table.describe(rows)))
        assert (table.left_to[rows] == NOBODY).all()
        table.attempts[rows] = table.next_try_ns[rows] = table.row_id[rows] = 7
        table.settled[rows], table.last[rows], table.left_to[rows], table.group[rows] = True, Outcome.RETRY, 1, 9
        gone = rows_of(draw.sample(list(held), draw.randrange(len(held) + 1)))
        table.release(gone)
        for row in gone.tolist():
            del held[row]
        assert len(table) == len(held)
        left = rows_of(list(held))
        described = [(each.event, each.first_read_ns) for each in table.describe(left)]
        assert described == [(each, read_ns) for each, _, read_ns in held.values()]
        for row, (each, owner, _) in list(held.items())[:20]:
            assert table.find(each.event_id, -1).tolist() == ([] if owner is None else [row])
        for one in stretches:
            mine = sorted((each.offset, row) for row, (each, owner, _) in held.items() if owner is one)
            assert table.of_stretch(one).tolist() == [row for _, row in mine]
        parts = table.by_stretch(left)
        assert len({id(owner) for owner, _ in parts}) == len(parts)
        assert sorted(at for _, which in parts for at in which.tolist()) == list(range(len(left)))
        assert all(held[row][1] is owner for owner, which in parts for row in left[which].tolist())


def test_sizes_are_those_of_ids_keys_and_records() -> None:
    table, events = OpenEvents(), [event(n) for n in range(20)]
    rows = table.add(Events.of(events), None, 0)
    assert table.sizes[rows].tolist() == [len(e.event_id) + len(e.key) + len(e.record) for e in events]


def test_when_the_clock_goes_back_only_what_is_settled_stays_where_it_is() -> None:
    table = OpenEvents()
    rows = table.add(Events.of(map(event, range(3))), None, 0)
    table.next_try_ns[rows], table.settled[rows] = [50, 500, 500], [False, False, True]
    table.clock_went_back(100)
    assert table.next_try_ns[rows].tolist() == [50, 100, 500]
