"""A record that is in no log is looked for again before it becomes an alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from photon.config.disk import RealDisk
from photon.outputs.published import OutputFile
from photon.verifier.alarms import AlarmKind
from photon.verifier.checker import CheckedSlice, LineFinding
from photon.verifier.service import CheckLoop, ServiceLimits, _CheckedSlot

GRACE_S = 30.0
CLICKS = "foreign clicks.log"


class Rig:
    """Takes slices; nothing is read."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told: list[AlarmKind] = []
        self.committed: list[CheckedSlice] = []
        clock: Any = self
        sources: Any = None
        self.checking = CheckLoop(RealDisk(), clock, Path(), sources, dict, ServiceLimits(log_grace_s=GRACE_S))
        self.own = _CheckedSlot()
        checker: Any = self
        self.own.checker = checker

    def monotonic(self) -> float:
        return self.now

    def now_ns(self) -> int:
        return 0

    def commit(self, done: CheckedSlice) -> None:
        self.committed.append(done)

    def tell(self, finding: AlarmKind, *_: object, **__: object) -> None:
        self.told.append(finding)

    def take(self, kind: str, *missing: str) -> bool:
        """A slice that lacks records of these logs; returns whether it counts."""
        alarms: Any = self
        before = len(self.committed)
        done = CheckedSlice(
            OutputFile(f"{kind}/s-000001.jsonl", 10, closed=False, final=False), 10, missing=set(missing)
        )
        done.found += [LineFinding(AlarmKind.NO_SOURCE, 0, each) for each in missing]
        self.checking._take(self.own, done, alarms)
        return len(self.committed) > before


def test_it_is_told_when_the_grace_is_over() -> None:
    rig = Rig()
    assert not rig.take("joined", CLICKS)
    rig.now += GRACE_S - 1
    assert not rig.take("joined", CLICKS)
    assert rig.told == []
    rig.now += 1
    assert rig.take("joined", CLICKS)
    assert rig.told == [AlarmKind.NO_SOURCE]


def test_it_is_forgotten_when_the_log_is_back_and_another_time_is_another_grace() -> None:
    rig = Rig()
    assert not rig.take("joined", CLICKS)
    rig.now += GRACE_S
    assert rig.take("joined")
    assert not rig.take("joined", CLICKS)
    assert rig.told == []


def test_slices_of_another_kind_neither_wait_nor_end_it() -> None:
    rig = Rig()
    assert not rig.take("joined", CLICKS)
    rig.now += GRACE_S / 2
    assert rig.take("unmatched")
    rig.now += GRACE_S / 2
    assert rig.take("joined", CLICKS)


def test_each_log_has_its_grace_once_while_lines_go_on_being_wrong() -> None:
    rig = Rig()
    assert not rig.take("joined", CLICKS)
    rig.now += GRACE_S
    assert rig.take("joined", CLICKS)
    assert rig.take("joined", CLICKS)
    assert not rig.take("joined", "foreign clicks.log", "primary queries.log")


def test_it_is_looked_for_once_a_second_and_not_all_the_time() -> None:
    rig = Rig()
    rig.take("joined", CLICKS)
    assert rig.own.not_before_s > rig.now
