"""Simulations make millions of short-lived objects and keep their worlds: fewer collections, which find nothing.

A failure of a seeded one ends with the command that replays it.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import astuple
from typing import Any

import pytest

from tests.simulation.world.noticed import searched
from tests.simulation.world.speed import Speed

_BEFORE = pytest.StashKey[Speed]()
_SEED = re.compile(r"SEED=(\d+)|\bseed (\d+)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "setup":
        item.stash[_BEFORE] = Speed.total
    elif report.when == "teardown":
        report.user_properties.append(("speed", astuple(Speed.total - item.stash[_BEFORE])))
        report.user_properties += [("searched", each) for each in searched]
        searched.clear()
    if report.failed and item.get_closest_marker("seeded") is not None:
        named = _SEED.search(report.longreprtext) or re.search(r"()\[(\d+)[-\]]", item.name)
        if named is not None:
            report.sections.append(("Replay", f"make sim SEED={named[1] or named[2]}  # {item.nodeid}"))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints simulated time per processor time, and what ``make notice`` would save the next run."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    said = [each for report in reports for each in getattr(report, "user_properties", ())]
    if total := sum((Speed(*cost) for name, cost in said if name == "speed"), Speed()):
        terminalreporter.write_line(f"simulated: {total}")
    if missed := [what for name, what in said if name == "searched"]:
        terminalreporter.write_line(f"no longer shown by its known schedule, make notice: {', '.join(missed)}")
