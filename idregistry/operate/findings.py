"""Finds problems of a deployment's registry from inspections and certificates, and says what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Literal

from photon.idregistry import registry_pb2 as pb
from photon.idregistry.core.clock_offsets import middle_s, surely_apart_s
from photon.idregistry.operate.inspection import GroupRow, Inspection, epoch_of, group_rows

DISK_SHARE_MIN = 0.05
DISK_BYTES_MIN = 1 << 30  # less free disk space than this, or than DISK_SHARE_MIN of the disk, is a finding
LAG_MAX = 1_000  # entries that a replica may be behind

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    where: str
    what: str
    do: str


@dataclass(frozen=True, slots=True)
class Expected:
    """The deployment file's settings."""

    members: Mapping[str, str]
    uncertainty_s: float


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """When an identity's certificate ends. ``ends`` is ``None`` if the certificate is unusable; ``why`` says why."""

    identity: str
    ends: datetime | None
    soon: bool = False
    why: str = ""


def findings(
    found: Mapping[str, Inspection], expected: Expected, certificates: Sequence[CertificateEnd]
) -> list[Finding]:
    """Returns all findings, errors first."""
    said = [*_reach(found), *_membership(found, expected), *_clocks(found, expected.uncertainty_s), *_disks(found)]
    for row in group_rows(found):
        said += _group(row)
    said += _certificates(certificates)
    said += [_alarm(f"replica {name}", alarm) for name, reply in _replies(found) for alarm in reply.alarms]
    return sorted(said, key=lambda each: each.level != "error")


def _reach(found: Mapping[str, Inspection]) -> Iterator[Finding]:
    silent = {name: each.why for name, each in found.items() if each.reply is None}
    for name, why in silent.items():
        do = "start it, or look at its log; if it is lost for good: photon registry replace"
        yield Finding("error", f"replica {name}", why, do)
    left, needed = len(found) - len(silent), len(found) // 2 + 1
    if left < needed:
        what = f"{left} of {len(found)} replicas answer, but {needed} are needed: nothing can be registered"
        yield Finding("error", "registry", what, "first restart replicas")
    elif silent and left == needed:
        what = f"{left} of {len(found)} replicas answer: one more loss stops the registry"
        yield Finding("warning", "registry", what, "restart the replicas that do not answer")


def _membership(found: Mapping[str, Inspection], expected: Expected) -> Iterator[Finding]:
    do, epoch = "restart it", epoch_of(found)
    for name, reply in _replies(found):
        if sorted(reply.members) != sorted(expected.members):
            what = f"has the membership {', '.join(sorted(reply.members))}"
            yield Finding("error", f"replica {name}", what, do)
        elif reply.epoch != epoch:
            what = f"is in membership epoch {reply.epoch}, but others are in {epoch}"
            yield Finding("error", f"replica {name}", what, do)
    versions = {reply.version for _, reply in _replies(found)}
    if len(versions) > 1:
        what = f"replicas run the releases {', '.join(sorted(versions))}"
        yield Finding("warning", "registry", what, "finish the upgrade")


def _clocks(found: Mapping[str, Inspection], uncertainty_s: float) -> Iterator[Finding]:
    """Compares the replicas' clocks with their median, since the operator's own clock may be wrong."""
    answering = [each for each in found.values() if each.reply is not None]
    if not answering:
        return
    middle = median(each.clock_ahead_s for each in answering)
    within = middle_s((each.clock_ahead_s, each.round_trip_s / 2) for each in answering)
    for each in answering:
        off = each.clock_ahead_s - middle
        least = surely_apart_s(each.clock_ahead_s, each.round_trip_s / 2, within)
        if least > uncertainty_s / 2:
            what = f"its clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the others' median"
            level: Level = "error" if least > uncertainty_s else "warning"
            yield Finding(
                level, f"replica {each.name}", what, f"synchronise it; clock.uncertainty is {uncertainty_s:g} s"
            )
    if surely_apart_s(0.0, 0.0, within) > uncertainty_s:
        what = f"all replicas' clocks are {abs(middle):.1f} s {'ahead of' if middle > 0 else 'behind'} this machine's"
        yield Finding("warning", "this machine", what, "synchronise the clocks")


def _disks(found: Mapping[str, Inspection]) -> Iterator[Finding]:
    for name, reply in _replies(found):
        share = reply.disk_free / max(reply.disk_size, 1)
        if reply.disk_free < DISK_BYTES_MIN or share < DISK_SHARE_MIN:
            what = f"its disk has {reply.disk_free / (1 << 20):,.0f} MiB free, {share:.1%}"
            yield Finding("warning", f"replica {name}", what, "free some space: a full disk makes it read-only")


def _group(row: GroupRow) -> Iterator[Finding]:
    where = f"group {row.group}"
    for alarm in row.alarms:
        yield _alarm(where, alarm)
    if not row.leader:
        yield Finding("error", where, "has no leader", "check which replicas answer; wait for an election")
    if row.closed:
        yield Finding(
            "error", where, "was restored and is not open: inserts wait", "photon registry restore --help, step 2"
        )
    for lag in row.lags:
        if lag.behind is not None and lag.behind > LAG_MAX:
            what = f"replica {lag.replica} is {lag.behind:,} entries behind"
            yield Finding("warning", where, what, "it catches up by itself; check its disk and network")


def _alarm(where: str, alarm: str) -> Finding:
    return Finding("error", where, alarm, "see the replica's log and docs/operations/registry.md")


def _certificates(certificates: Sequence[CertificateEnd]) -> Iterator[Finding]:
    for each in certificates:
        where, do = f"certificate {each.identity}", "photon certs for FILE"
        if each.ends is None:
            yield Finding("error", where, each.why, do)
        elif each.soon:
            yield Finding("warning", where, f"expires on {each.ends:%Y-%m-%d}", do)


def _replies(found: Mapping[str, Inspection]) -> list[tuple[str, pb.InspectReply]]:
    return [(name, each.reply) for name, each in found.items() if each.reply is not None]
