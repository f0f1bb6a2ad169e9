"""Takes back whatever faults a deployment shows, whoever did them."""

from __future__ import annotations

from collections.abc import Iterable

from photon.lab.chaos.api import Target
from photon.lab.wan.links import Change, Fault

SAME_S = 1e-6
"""Delays that differ by less are the same."""


async def heal(target: Target, names: Iterable[str], round_trip_s: float | None) -> list[str]:
    """What was done, a line each. ``names``: processes whose disk may be filled; ``round_trip_s``: what lies between
    the regions where nothing is wrong, None: no proxy does. Raises ChaosFailed; it may be repeated."""
    said = []
    processes = await target.processes()
    if paused := [name for name, now in processes.items() if now.detail == "paused"]:
        await target.resume(paused)
        said.append(f"go on: {', '.join(paused)}")
    skewed = [name for name, now in processes.items() if now.skewed]
    if held := [name for name, now in processes.items() if now.detail == "held" and name not in skewed]:
        await target.release(held)
        said.append(f"start again: {', '.join(held)}")
    for name in skewed:  # also starts one that is held
        await target.skew(name, None)
    if skewed:
        said.append(f"start again with the right clock: {', '.join(skewed)}")
    if round_trip_s is not None and (changes := await _changes(target, round_trip_s / 2)):
        await target.change(changes)
        said.append(f"{len(changes)} directions between regions are as they were")
    for name in names:
        await target.empty(name)
    return said


async def _changes(target: Target, delay_s: float) -> list[Change]:
    """Of directions that are not as they are without faults."""
    return [
        Change(each.source, each.destination, delay_s, Fault.NONE)
        for each in await target.directions()
        if each.fault is not Fault.NONE or abs(each.delay_s - delay_s) > SAME_S
    ]
