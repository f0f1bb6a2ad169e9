"""Conclusions from inspections: rows, findings, and whether a replica may be replaced."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from photon.config.settings import Replica
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.operate.findings import CertificateEnd, Expected, Finding, findings
from photon.idregistry.operate.inspection import Inspection, group_rows, groups_of, leader_of
from photon.idregistry.operate.replacing import (
    ReplaceRefused,
    behind,
    check_survivors,
    exchange,
    not_there_yet,
    survivors,
)

NAMES = ("r1", "r2", "r3")
MEMBERS = {name: f"host:{name}" for name in NAMES}
EXPECTED = Expected(MEMBERS, 5.0)


def group(number: int, **more: Any) -> pb.GroupInspection:
    facts = {"healthy": True, "writable": True, "applied": 10, "committed": 10, "boundary_ns": NO_BOUNDARY, "term": 2}
    return pb.GroupInspection(group=number, **(facts | more))


def replica(name: str, *groups: pb.GroupInspection, ahead: float = 0.0, **more: Any) -> Inspection:
    facts = {"epoch": 1, "members": MEMBERS, "disk_free": 50 << 30, "disk_size": 100 << 30, "version": "1"}
    return Inspection(name, pb.InspectReply(replica=name, groups=groups, **(facts | more)), "", 0.01, ahead)


def silent(name: str) -> Inspection:
    return Inspection(name, None, "unavailable", 0.0, 0.0)


def healthy() -> dict[str, Inspection]:
    return {
        "r1": replica("r1", group(0, is_leader=True), group(1)),
        "r2": replica("r2", group(0), group(1, is_leader=True, ids=7, bytes=300)),
        "r3": replica("r3", group(0), group(1, applied=4)),
    }


def test_rows_show_the_leader_s_figures_and_everybody_s_lag() -> None:
    found = healthy() | {"r4": silent("r4")}
    zero, one = group_rows(found)
    assert (zero.leader, one.leader, one.ids, one.bytes, one.boundary_ns) == ("r1", "r2", 7, 300, None)
    assert [(each.replica, each.behind) for each in one.lags] == [("r1", 0), ("r2", 0), ("r3", 6), ("r4", None)]
    assert groups_of(found.values()) == [0, 1]


def test_of_two_that_say_they_lead_the_newer_term_does() -> None:
    found = [replica("r1", group(1, is_leader=True, term=3)), replica("r2", group(1, is_leader=True, term=4))]
    assert leader_of(found, 1) == "r2"
    assert leader_of(found, 9) == ""


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert findings(healthy(), EXPECTED, [CertificateEnd("operator", datetime(2030, 1, 1, tzinfo=UTC))]) == []


def said(found: dict[str, Inspection], *certificates: CertificateEnd) -> list[tuple[str, str, str]]:
    return [(each.level, each.where, each.what) for each in findings(found, EXPECTED, certificates)]


def test_each_trouble_is_found() -> None:
    found = healthy() | {"r3": silent("r3")}
    assert ("error", "replica r3", "unavailable") in said(found)
    assert any("one more loss stops the registry" in what for _, _, what in said(found))
    assert any("nothing can be registered" in what for _, _, what in said(found | {"r2": silent("r2")}))
    cases = [
        (replica("r3", group(0), group(1), epoch=2), "is in membership epoch 1, but others are in 2"),
        (replica("r3", group(0), group(1), members={"r3": "x"}), "has the membership r3"),
        (replica("r3", group(0), group(1), version="2"), "replicas run the releases 1, 2"),
        (replica("r3", group(0), group(1), ahead=3.0), "its clock is 3.0 s ahead of the others' median"),
        (replica("r3", group(0), group(1), ahead=-9.0), "its clock is 9.0 s behind the others' median"),
        (replica("r3", group(0), group(1), disk_free=100 << 20), "its disk has 100 MiB free, 0.1%"),
        (replica("r3", group(0), group(1), alarms=["rows rot"]), "rows rot"),
        (replica("r3", group(0), group(1, alarms=["memory"])), "r3: memory"),
        (replica("r3", group(0), group(1, writable=False)), "r3: the disk is full: read-only"),
        (replica("r3", group(0), group(1, healthy=False)), "r3: stopped on an error"),
        (replica("r3", group(0), group(1, committed=5_000)), "replica r3 is 4,990 entries behind"),
    ]
    for changed, expected in cases:
        whats = [what for _, _, what in said(healthy() | {"r3": changed})]
        assert expected in whats, whats
    closed = replica("r2", group(0), group(1, is_leader=True, closed=True))
    assert any("not open" in what for _, _, what in said(healthy() | {"r2": closed}))
    leaderless = replica("r2", group(0), group(1))
    assert ("error", "group 1", "has no leader") in said(healthy() | {"r2": leaderless})


def test_certificates_and_order() -> None:
    soon = CertificateEnd("registry-r1", datetime(2026, 1, 2, tzinfo=UTC), soon=True)
    ended = CertificateEnd("operator", None, why="expired on 2026-01-01")
    assert [each[:2] for each in said(healthy(), soon, ended)] == [
        ("error", "certificate operator"),
        ("warning", "certificate registry-r1"),
    ]
    assert isinstance(findings(healthy(), EXPECTED, [ended])[0], Finding)


# -- replacing ------------------------------------------------------------------------------------------------------
REPLICAS = {name: Replica(address=f"a:{name}", directory=name) for name in ("r1", "r2", "r4")}


def kept() -> dict[str, Inspection]:
    found = healthy()
    del found["r3"]
    return found


def test_the_file_has_the_new_one_in_the_old_one_s_place() -> None:
    assert survivors(REPLICAS, "r3", "r4") == {"r1": "a:r1", "r2": "a:r2"}
    for old, new in (("r2", "r4"), ("r3", "r9")):
        with pytest.raises(ReplaceRefused, match="first replace the table of"):
            survivors(REPLICAS, old, new)


def test_the_next_membership_is_the_survivors_with_the_new_one() -> None:
    found = exchange(kept(), "r3", "r4", "b:4")
    assert (found.epoch, {*found.members}, {*found.next}) == (2, {"r1", "r2", "r3"}, {"r1", "r2", "r4"})
    assert found.next["r4"] == "b:4"


LED = (group(0, is_leader=True), group(1))


@pytest.mark.parametrize(
    ("changed", "old", "new", "why"),
    [
        ({"r1": silent("r1")}, "r3", "r4", "r1 does not answer"),
        ({"r2": replica("r2", *LED, epoch=2)}, "r3", "r4", "write epoch = 2 under"),
        ({"r2": replica("r2", *LED, members={"r1": ""})}, "r3", "r4", "is in epoch 1 of r1"),
        ({}, "r3", "r3", "never used"),
        ({}, "r9", "r4", "the members are r1, r2, r3"),
        ({"r1": replica("r1", group(0, healthy=False), group(1))}, "", "", "is not healthy"),
        ({"r1": replica("r1", group(0), group(1))}, "", "", "group 0 has no leader"),
    ],
)
def test_only_with_every_survivor_at_hand_may_one_be_replaced(
    changed: dict[str, Inspection], old: str, new: str, why: str
) -> None:
    assert [row.group for row in check_survivors(kept())] == [0, 1]
    with pytest.raises(ReplaceRefused, match=why):
        exchange(kept() | changed, old, new, "b:4") if old else check_survivors(kept() | changed)


def test_the_barrier_is_waited_for_on_every_survivor() -> None:
    assert behind(kept(), {0: 10, 1: 10}) == []
    assert behind(kept(), {0: 10, 1: 11}) == ["r1 in group 1", "r2 in group 1"]


def test_the_new_membership_stands_when_all_run_in_it_and_nothing_lags() -> None:
    assert not_there_yet(healthy()) == ["r3 is 6 entries behind in group 1"]
    assert len(not_there_yet(healthy() | {"r1": silent("r1")})) == 5
    ahead = replica("r2", group(0), group(1), epoch=2)
    assert "r1 runs in epoch 1: restart it" in not_there_yet(healthy() | {"r2": ahead})
