"""Tasks' notes on logs tell their hours; only for logs that were read completely."""

from __future__ import annotations

import numpy as np

from photon.spark.read_notes import HOUR_NS, ReadNote, hours_of_logs
from photon.spark.sources import EVER, TimeRange


def note(begin: int, hours: list[int], *, since: int = 0, **more: object) -> ReadNote:
    made = ReadNote(what="foreign", datacentre="east", identity="1a", begin=begin, slices=2, bytes=9, **more)  # type: ignore[arg-type]
    for at, hour in enumerate(hours):
        made.add(np.array([hour * HOUR_NS + 5]), np.array([begin + at]), since)
    return made


def test_the_hours_of_a_log_are_those_of_all_its_slices() -> None:
    name = ("foreign", "east", "1a")
    one, other, empty = note(0, [7, 5, 6]), note(10, [9, 4]), note(10, [])
    assert hours_of_logs([one]) == hours_of_logs([one, one]) == {}
    assert hours_of_logs([one, other]) == {name: (4, 9, True)}
    assert hours_of_logs([one, empty]) == {name: (5, 7, True)}
    assert hours_of_logs([note(0, []), empty]) == {name: (None, None, True)}
    assert hours_of_logs([note(0, [3], damaged=True), other]) == {name: (3, 9, False)}


def test_what_is_new_in_a_log_is_told_apart() -> None:
    name = ("foreign", "east", "1a")
    slices = [note(0, [7, 5, 6], since=11), note(10, [9, 4, 8], since=11)]
    assert hours_of_logs(slices, fresh=True) == {name: (4, 8, True)}


def test_windows_and_spans() -> None:
    window = TimeRange(begin_ns=10, end_ns=20)
    spans = [(0, 9), (0, 10), (12, 13), (19, 30), (20, 30)]
    assert [window.meets(*span) for span in spans] == [False, True, True, True, False]
    assert window.wider(3) == TimeRange(begin_ns=7, end_ns=23)
    assert EVER.meets(-(1 << 60), 0)
    assert EVER.wider(5) == EVER
