"""Clearing killed at any write: everything is still cleared, and each alarm is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.verifier.alarms import NAME, AlarmLog, open_alarms, read_lines
from photon.verifier.seen_ids import SeenIds
from photon.verifier.slot_work import LineFindings
from photon.verifier.verifier import Verifier, VerifierLimits
from tests.dying_disk import DyingDisk, Killed
from tests.unit.joiner.helpers import DIGESTER
from tests.unit.verifier.test_service import Setup

GOOD = [b"a", b"b", b"c", b"d"]


async def test_killed_at_any_write_everything_is_cleared_and_told_once(tmp_path: Path) -> None:
    for crash in range(60):
        setup = _planted(tmp_path / str(crash))
        crashed = False
        for disk in (DyingDisk(crash), RealDisk()):
            try:
                await _pass(setup, disk)
            except Killed:
                crashed = True
        own = setup.pipeline.slots / "s0/verifier"
        stand = sorted((each.finding, each.event_id) for each in open_alarms(RealDisk(), own))
        assert stand == [("doubled", "b"), ("not-owned", "x"), ("torn", "")], crash
        assert len(read_lines(RealDisk(), own / NAME)) == len(stand), crash
        assert all(map(setup.cleared, GOOD)), crash
        if not crashed:
            return
    raise AssertionError("there are more writes than this test reckons with")


def _planted(path: Path) -> Setup:
    """Good lines, one of them twice, a torn one, and one that nobody registered."""
    path.mkdir()
    setup = Setup(path)
    setup.write("s0", GOOD)
    file = path / "output/joined/s0-000001.jsonl"
    good = file.read_bytes()
    invented = good.splitlines(keepends=True)[0].replace(b'"event_id":"a"', b'"event_id":"x"')
    twice = good.splitlines(keepends=True)[1]
    setup.write("s0", [])
    file.write_bytes(good + b"torn li\n" + invented + twice)
    durable = setup.pipeline.slots / "s0/durable.json"
    durable.write_bytes(durable.read_bytes().replace(b":0}", b":%d}" % file.stat().st_size))
    return setup


async def _pass(setup: Setup, disk: Any) -> None:
    """A process's life: one pass over everything in small blocks."""
    state = setup.pipeline.slots / "s0"
    disk.make_dir(state / "verifier")
    alarms = AlarmLog(disk, state / "verifier", "s0")
    findings = LineFindings("s0", {"s0": alarms}, SeenIds(1000), SystemClock())
    limits = VerifierLimits(block_bytes=200, clear_ids=1)
    output = setup.pipeline.output
    await Verifier(disk, state, output, DIGESTER, setup.registry, limits=limits, findings=findings).run_once()
