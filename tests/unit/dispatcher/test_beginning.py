"""The starting place of a dispatcher in unknown logs, and how it is set back to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from photon.adapters.logs.api import LogPosition
from photon.dispatcher.partitions import Partition, all_of
from photon.dispatcher.process import Places
from photon.dispatcher.skipping import Place, begin, locked_states
from tests.unit.dispatcher.test_skip import ADAPTER, DIGESTER, HOUR, line, read_on, written


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "clicks").mkdir()
    return Places(tmp_path / "clicks", tmp_path / "out", tmp_path / "state", ("**/*.log*",), 1 << 10)


def positions(places: Places) -> list[LogPosition]:
    with locked_states(places, "clicks", ADAPTER, DIGESTER, create=False) as states:
        return [position for state in states.values() for position in state.positions()]


@pytest.mark.parametrize(("read_from", "left"), [(Place.BEGINNING, 10), (Place.END, 0), (6 * HOUR, 4)])
def test_it_counts_for_logs_there_before_the_state(places: Places, read_from: Place | int, left: int) -> None:
    lines = [line(n, n) for n in range(10)]
    written(places.foreign / "a.log", lines)
    skips = begin(places, "clicks", ADAPTER, DIGESTER, read_from)
    assert (skips is None) == (read_from is Place.BEGINNING)
    later = [line(100 + n, n) for n in range(5)]
    written(places.foreign / "b.log", later)
    if skips is not None:  # now there is a state: nothing is left out any more
        assert begin(places, "clicks", ADAPTER, DIGESTER, Place.END) is None
    assert len(read_on(places, positions(places))) == left + 5


def test_each_of_several_begins_with_its_own_logs(places: Places) -> None:
    for name in range(8):
        written(places.foreign / f"{name}.log", [line(10 * name + n, n) for n in range(10)])
    shares = [begin(replace(places, partition=each), "clicks", ADAPTER, DIGESTER, 6 * HOUR) for each in all_of(3)]
    assert [len(skips.skips) for skips in shares if skips is not None and skips.skips]
    assert sum(len(skips.skips) for skips in shares if skips is not None) == 8
    assert len(read_on(places, positions(places))) == 8 * 4
    assert begin(replace(places, partition=Partition(1, 2)), "clicks", ADAPTER, DIGESTER, Place.END) is None
