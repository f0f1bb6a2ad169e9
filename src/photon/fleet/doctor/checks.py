"""Derives findings from facts: what is or will be wrong, where, and what to do. Pure: the time is an argument."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from photon.config.words import duration, many, size
from photon.fleet.doctor.facts import Directory, Facts, Logs, Machine, Process
from photon.idregistry.core.clock_offsets import middle_s, surely_apart_s

FREE_BYTES_LOW, FREE_SHARE_LOW = 1 << 30, 0.05
"""Less free space than either is a warning."""
FREE_BYTES_NONE = 100 << 20
"""Less free space than this is a problem."""
FREE_BYTES_ENOUGH = 50 << 30
"""With this much free space, no share is too small."""
SYNC_SLOW_S, SYNC_BAD_S = 0.1, 1.0
"""Each batch of a joiner and each entry of the registry waits for one fsync."""
EXPIRES_WITHIN = timedelta(days=30)
FILES_OF_A_PROCESS = 512
"""Files that a process opens besides its logs: sockets, segments, outputs."""
FILES_USED_SHARE = 0.8
BOUNDARY_SLACK_S = 3600.0
"""The boundary may lag the retention by this much."""
GROUP_AND_OTHERS, OTHERS = 0o077, 0o004
NAMED_MAX = 5
SAFE_POINT_ROUNDS = 3
"""Observers move a safe point each time that old versions have been kept for long enough."""
STILL_S = 60.0
"""A watermark that has not moved for this time stands still."""


class Level(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works today."""
    PROBLEM = "problem"


AREAS = ("configuration", "versions", "clocks", "disks", "logs", "output", "descriptors", "ports", "certificates",
         "registry", "watermarks", "computations", "tables")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    area: str
    level: Level
    what: str
    where: str = ""
    do: str = ""


def findings(facts: Facts, now: datetime) -> list[Finding]:
    """Findings by area. An area without problems gets one line that says what was checked."""
    checks = [_configuration(facts), _versions(facts)]
    if not facts.loaded:
        checks.append(_descriptors(facts))
    else:
        checks += [_clocks(facts), _disks(facts), _logs(facts), _output(facts), _descriptors(facts)]
        checks += [_ports(facts), _certificates(facts, now), _registry(facts), _watermarks(facts)]
        checks += [_computations(facts), _tables(facts)]
    said: list[Finding] = []
    for found in checks:
        here = list(found)
        wrong = [each for each in here if each.level is not Level.OK]
        said += sorted(wrong, key=lambda each: each.level is not Level.PROBLEM) or here
    return said


def _problem(area: str, where: str, what: str, do: str) -> Finding:
    return Finding(area, Level.PROBLEM, what, where, do)


def _warning(area: str, where: str, what: str, do: str) -> Finding:
    return Finding(area, Level.WARNING, what, where, do)


def _ok(area: str, what: str) -> Finding:
    return Finding(area, Level.OK, what)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - NAMED_MAX
    return ", ".join(listed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# -- configuration, versions -----------------------------------------------------------------------------------------
def _configuration(facts: Facts) -> Iterator[Finding]:
    for mistake in facts.mistakes:
        yield _problem(
            "configuration", facts.file, mistake, "correct the file; photon doctor config says when it is good"
        )
    for state in facts.states:
        yield _problem(
            "configuration", state.path, state.problem, "see docs/operations; never delete it to get going"
        )
    if facts.secret is not None:
        if facts.secret.problem:
            what = facts.secret.problem
            yield _problem("configuration", facts.secret.path, what, f"head -c 32 /dev/urandom > {facts.secret.path}")
        elif facts.secret.mode & GROUP_AND_OTHERS:
            what = f"the key of the digests has mode {facts.secret.mode:04o}: others on this machine can read it"
            yield _warning("configuration", facts.secret.path, what, f"chmod 600 {facts.secret.path}")
    for process in facts.processes:
        if process.unmatched_waits:
            what = f"calls no event unmatched now; {process.unmatched_waits}"
            do = "restart each process of an older file with the newer one (docs/operations/change-a-join.md)"
            yield _warning("configuration", process.name, what, do)
    if not facts.loaded:
        yield _ok("configuration", "no deployment file was named: only this machine is looked at")
        return
    told = f"joins {', '.join(facts.joins)}; " if facts.joins else ""
    yield _ok("configuration", f"{told}adapters load; {'; '.join(facts.survives) or 'one datacentre'}")


def _versions(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    if not machine.python_fits:
        what = f"Python {machine.python}: Photon needs 3.11 or later"
        yield _problem("versions", "this machine", what, "run Photon with a newer Python")
    for package in machine.packages:
        if not package.found:
            what = f"package {package.name} is not installed ({package.wanted or 'any version'} is needed)"
            yield _problem("versions", "this machine", what, f"pip install '{package.name}{package.wanted}'")
        elif not package.fits:
            what = f"package {package.name} is {package.found}, {package.wanted} is needed"
            yield _warning("versions", "this machine", what, f"pip install '{package.name}{package.wanted}'")
    by_version: dict[str, list[str]] = {}
    for process in facts.processes:
        if process.version:
            by_version.setdefault(process.version, []).append(process.name)
    if len(by_version) > 1:
        what = "; ".join(f"{version}: {_some(names)}" for version, names in sorted(by_version.items()))
        yield _warning("versions", "processes", f"several releases run: {what}", "finish the upgrade")
    elif by_version and machine.version not in by_version:
        what = f"this command is release {machine.version}, the processes run {next(iter(by_version))}"
        yield _warning("versions", "this machine", what, "use the command of the same release, or finish the upgrade")
    adapters: dict[str, dict[str, list[str]]] = {}
    for process in facts.processes:
        join, code = process.adapter
        if code:
            adapters.setdefault(join, {}).setdefault(code, []).append(f"{process.name} of {process.datacentre}")
    for join, codes in sorted(adapters.items()):
        if len(codes) > 1:
            what = "; ".join(f"{code}: {_some(names)}" for code, names in sorted(codes.items()))
            yield _warning("versions", f"join {join}", f"several adapters run: {what}", "finish the upgrade")
        else:
            yield _ok("versions", f"join {join}: adapter {next(iter(codes))}")
    run = f", as all {sum(map(len, by_version.values()))} processes that answer" if by_version else ""
    yield _ok("versions", f"Photon {machine.version}{run}; Python {machine.python}, {len(machine.packages)} packages")


# -- clocks ----------------------------------------------------------------------------------------------------------
def _clocks(facts: Facts) -> Iterator[Finding]:
    """Compares each clock with the median of all, because this machine's own may be the wrong one."""
    machine, allowed = facts.machine, facts.uncertainty_s
    if machine.synchronised is False and not facts.one_machine:
        what = "the kernel says that this machine's clock is not synchronised"
        yield _warning(
            "clocks", "this machine", what, "run chrony or ntpd; photon needs clocks within clock.uncertainty"
        )
    told = [each for each in facts.processes if each.ahead_s is not None]
    if not told:
        yield _ok("clocks", f"no process says its time; S is {allowed:g} s")
        return
    middle = median([each.ahead_s or 0.0 for each in told])
    within = middle_s((each.ahead_s or 0.0, each.error_s) for each in told)
    for each in told:
        least = surely_apart_s(each.ahead_s or 0.0, each.error_s, within)
        if least > allowed / 2:
            yield _clock(each, middle, allowed, least)
    if surely_apart_s(0.0, 0.0, within) > allowed:
        what = f"this machine's clock is {abs(middle):.1f} s {'behind' if middle > 0 else 'ahead of'} the processes'"
        yield _warning("clocks", "this machine", what, f"synchronise it: S is {allowed:g} s")
    yield from _between(told, allowed)
    worst = max(abs((each.ahead_s or 0.0) - middle) for each in told)
    yield _ok("clocks", f"{len(told)} processes within {worst:.3f} s of their median; S is {allowed:g} s")


def _clock(each: Process, middle: float, allowed: float, least: float) -> Finding:
    off = (each.ahead_s or 0.0) - middle
    what = f"its clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the others' median"
    make = _problem if least > allowed else _warning
    return make("clocks", each.name, what, f"synchronise its machine: S (clock.uncertainty) is {allowed:g} s")


def _between(told: list[Process], allowed: float) -> Iterator[Finding]:
    by_place: dict[str, list[Process]] = {}
    for each in told:
        by_place.setdefault(each.datacentre, []).append(each)
    places = sorted((name, median([e.ahead_s or 0.0 for e in some]), max(e.error_s for e in some))
                    for name, some in by_place.items() if name)  # fmt: skip
    for at, (one, ahead, error) in enumerate(places):
        for other, other_ahead, other_error in places[at + 1 :]:
            apart = ahead - other_ahead
            if abs(apart) - error - other_error > allowed:
                what = f"the clocks of {one} are {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} {other}'s"
                do = "synchronise both with the same time servers: events of the future wait, boundaries may be wrong"
                yield _problem("clocks", f"{one}, {other}", what, do)


# -- disks, logs, descriptors ----------------------------------------------------------------------------------------
def _disks(facts: Facts) -> Iterator[Finding]:
    for each in facts.directories:
        yield from _directory(each)
    slowest = max((each.sync_s for each in facts.directories if not each.problem), default=0.0)
    least = min((each.free for each in facts.directories if not each.problem), default=0)
    if not facts.directories:
        yield _ok("disks", "no directory of the deployment is on this machine")
        return
    apart = [
        state.datacentre
        for state in facts.directories
        for output in facts.directories
        if (state.what, output.what) == ("state", "output")
        and state.datacentre == output.datacentre
        and state.device != output.device
    ]
    note = f"; state and output of {_some(apart)} are on different file systems" if apart else ""
    said = f"{len(facts.directories)} directories, at least {size(least)} free, fsync within {slowest * 1000:.0f} ms"
    yield _ok("disks", said + note)


def _directory(each: Directory) -> Iterator[Finding]:
    where = f"{each.what} of {each.datacentre}: {each.path}" if each.datacentre else f"{each.what}: {each.path}"
    if each.problem:
        yield _problem(
            "disks", where, each.problem, "give Photon's user a directory on a local disk that it may write"
        )
        return
    share = each.free / max(each.size, 1)
    free = f"{size(each.free)} free, {share:.1%}"
    if each.free < FREE_BYTES_NONE:
        yield _problem("disks", where, free, "make room at once: a full disk stops what is written there")
    elif each.free < FREE_BYTES_LOW or (share < FREE_SHARE_LOW and each.free < FREE_BYTES_ENOUGH):
        yield _warning("disks", where, free, "make room: a full disk stops what is written there")
    if each.network and each.what != "output":
        what = f"is on a network file system ({each.file_system}), whose locks and fsync cannot be relied on"
        yield _problem("disks", where, what, "put it on a local disk")
    if each.sync_s > SYNC_SLOW_S:
        make = _problem if each.sync_s > SYNC_BAD_S else _warning
        what = f"an fsync takes {each.sync_s * 1000:,.0f} ms; each batch waits for one"
        yield make("disks", where, what, "use a faster disk, or one that others do not keep busy")


def _logs(facts: Facts) -> Iterator[Finding]:
    for each in facts.logs:
        yield from _side(each)
    for process in facts.processes:
        if process.ambiguous_keys:
            what = f"{process.ambiguous_keys:,.0f} of the keys that events name have several different primary events"
            do = "photon status eventstore shows one; primary.duplicates says what becomes of such events"
            yield _warning("logs", process.name, what, do)
    total = sum(each.matched for each in facts.logs)
    here = ", ".join(dict.fromkeys(each.datacentre for each in facts.logs))
    yield _ok("logs", f"{total:,} log files of {here}" if here else "no log directory is on this machine")


def _side(each: Logs) -> Iterator[Finding]:
    where = f"{each.side} logs of {each.datacentre}: {each.path}"
    if each.problem:
        yield _problem("logs", where, each.problem, "make the directory, or name the right one in the file")
        return
    if each.unreadable:
        what = f"{len(each.unreadable)} files cannot be read: {_some(each.unreadable)}"
        yield _problem("logs", where, what, "make them readable for Photon's user")
    for text, count in each.absent_keys.items():
        what = f"{count:,} sampled records have the key {text!r}, which usually stands for no value"
        table = f"[join.{each.join}.{each.side}]"
        yield _warning("logs", where, what, f"add {text!r} to absent in {table}, or leave it if it is a real key")
    if not each.matched:
        patterns = ", ".join(each.patterns)
        what = f"no file matches {patterns}" + (f"; {each.others:,} files match nothing" if each.others else "")
        yield _warning("logs", where, what, f"write logs there, or change {each.side}_files of the join")


def _output(facts: Facts) -> Iterator[Finding]:
    for each in facts.ranges:
        if each.marked:
            continue
        make = _warning if each.moved else _problem
        why = "is gone: archived, or lost" if each.moved else each.why
        what = f"{why}; readers that have not read its bytes {each.start:,} to {each.end:,} stop there"
        do = "put it back from a copy, or run photon spark verify, then photon spark recover with its report"
        yield make("output", each.path, what, do)
    skipped = [
        f"{each.path} from {each.start:,} to {each.end:,} ({each.why})" for each in facts.ranges if each.marked
    ]
    said = f"; readers skip {many(len(skipped), 'damaged range')}: {_some(skipped)}" if skipped else ""
    yield _ok("output", f"all that is published here is there{said}")


def _descriptors(facts: Facts) -> Iterator[Finding]:
    machine = facts.machine
    logs: dict[str, int] = {}
    for each in facts.logs:
        logs[each.datacentre] = max(logs.get(each.datacentre, 0), each.matched)
    needed = max(logs.values(), default=0) + FILES_OF_A_PROCESS
    if machine.files_soft < needed:
        many = f"with {needed - FILES_OF_A_PROCESS:,} logs it may need {needed:,}"
        what = f"a process may open {machine.files_soft:,} files; {many}"
        make = _warning if machine.files_hard >= needed else _problem
        yield make("descriptors", "this machine", what, f"ulimit -n {2 * needed}, or LimitNOFILE= of the unit")
    for process in facts.processes:
        if process.max_files and process.open_files > FILES_USED_SHARE * process.max_files:
            what = f"has {process.open_files:,.0f} files open of {process.max_files:,.0f}"
            yield _problem("descriptors", process.name, what, "raise its limit (ulimit -n) and restart it")
    yield _ok("descriptors", f"{machine.files_soft:,} files a process, {needed:,} may be needed")


# -- ports, certificates, registry -----------------------------------------------------------------------------------
def _ports(facts: Facts) -> Iterator[Finding]:
    for port in facts.ports:
        if port.state == "taken":
            what = f"{port.who} shall listen there, and something else does" + (
                f" ({port.problem})" if port.problem else ""
            )
            yield _problem("ports", port.address, what, "stop that process (ss -ltnp shows it), or use another port")
    if facts.running:
        for process in facts.processes:
            if process.problem:
                what = f"does not answer at {process.address}: {process.problem}"
                yield _problem("ports", process.name, what, "start it (photon up), or look at its log")
    counts = {state: sum(port.state == state for port in facts.ports) for state in ("ours", "free", "elsewhere")}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none is named"
    yield _ok("ports", f"{said}{'' if facts.running else '; no process of the deployment answers'}")


def _certificates(facts: Facts, now: datetime) -> Iterator[Finding]:
    if not facts.tls:
        yield _ok("certificates", "no [tls]: connections are plain text, for one machine that nobody else uses")
        return
    there = [pair for pair in facts.pairs if pair.there]
    if not there:
        where = facts.pairs[0].path if facts.pairs else facts.file
        yield _problem("certificates", where, "there are none", "photon certs for FILE")
    elif facts.unasked:
        yield _problem("certificates", facts.file, facts.unasked, "photon certs for FILE, or run where it is")
    for pair in there:
        if pair.problem:
            yield _problem("certificates", pair.path, pair.problem, "photon certs for FILE --force, then restart")
        elif pair.ends is not None and pair.ends - now < EXPIRES_WITHIN:
            what = f"expires on {pair.ends:%Y-%m-%d}"
            yield _warning(
                "certificates", pair.path, what, "photon certs for FILE --renew, then restart its processes"
            )
        if pair.key_mode & GROUP_AND_OTHERS:
            what = f"its private key has mode {pair.key_mode:04o}"
            make = _problem if pair.key_mode & OTHERS else _warning
            yield make("certificates", pair.path, what, f"chmod 600 {pair.path.removesuffix('.crt')}.key")
    missing = [pair.identity for pair in facts.pairs if not pair.there]
    note = f"; not here: {_some(missing)}" if missing else ""
    first = min((pair.ends for pair in there if pair.ends is not None), default=None)
    yield _ok(
        "certificates", f"{len(there)} are here, the first expires on {first:%Y-%m-%d}{note}" if first else note
    )


def _registry(facts: Facts) -> Iterator[Finding]:
    registry = facts.registry
    if not registry.up and not facts.running:
        yield _ok("registry", "it was not asked" if facts.unasked else f"{registry.replicas} replicas, none runs")
        return
    for level, where, what, do in registry.findings:
        yield (_problem if level == "error" else _warning)("registry", where, what, do)
    if registry.retention_s is not None:
        for each in registry.boundaries:
            if each.age_s is not None and each.age_s > registry.retention_s + facts.uncertainty_s + BOUNDARY_SLACK_S:
                hours = each.age_s / 3600, registry.retention_s / 3600
                what = f"its boundary lies {hours[0]:,.1f} h back, retention is {hours[1]:,.1f} h"
                do = "look for an objection of its leader's clock: photon doctor registry"
                yield _warning("registry", f"shard {each.shard}", what, do)
    kept = "permanently" if registry.retention_s is None else f"for {registry.retention_s / 3600:,.1f} h"
    yield _ok("registry", f"{registry.up} of {registry.replicas} replicas answer; ids are kept {kept}")


def _watermarks(facts: Facts) -> Iterator[Finding]:
    if not facts.running:
        yield _ok("watermarks", "not looked at: nothing runs, or nobody was asked")
        return
    for each in facts.watermarks:
        still_s = max(each.still_s, each.exact_still_s)
        if still_s > STILL_S:
            which = "the percentile" if each.still_s > STILL_S else "the exact one"
            held = f"; held back by: {_some(each.held_by)}" if each.held_by else ""
            what = f"{which} has not moved for {still_s:,.0f} s{held}"
            do = "see to what holds it back: photon watermark, photon status lag, docs/watermarks.md"
            yield _warning("watermarks", each.datacentre, what, do)
    known = [each.behind_s for each in facts.watermarks]
    yield _ok("watermarks", f"{max(known):,.0f} s behind at most" if known else "none is kept yet")


def _computations(facts: Facts) -> Iterator[Finding]:
    known = [each for each in facts.processes if each.alarms is not None]
    for each in known:
        for what, do in each.alarms or ():
            yield _warning("computations", each.name, what, do)
    said = f"{len(known)} run, their watermarks move, nothing is put aside"
    yield _ok("computations", said if known else "none is named, or none was asked")


def _tables(facts: Facts) -> Iterator[Finding]:
    tables = facts.tables
    if tables is None:
        return
    if tables.problem:
        yield _problem("tables", tables.where, tables.problem, "start the store; photon status processes")
        return
    if tables.oracle_problem:
        what = f"there are no timestamps, so no transaction begins: {tables.oracle_problem}"
        yield _problem("tables", "oracle", what, "photon status oracle; a majority of the replicas must answer")
    if tables.stuck:
        what = (
            f"{many(tables.stuck, 'cell waits', 'cells wait')} for observers, and {tables.stuck_at} goes on waiting"
        )
        do = "see that observers run (photon serve observe, photon table observe) and that none raises: their log"
        yield _warning("tables", tables.where, what, do)
    if tables.old_locks:
        what = f"{many(len(tables.old_locks), 'lock')} of dead or slow clients: {_some(tables.old_locks)}"
        yield _warning("tables", tables.where, what, "photon table scan --locks; who reads these cells resolves them")
    old_s = tables.safe_point_s
    if tables.observed and old_s is not None and old_s > tables.keep_s * SAFE_POINT_ROUNDS:
        what = f"the safe point was moved {duration(old_s)} ago: old versions pile up"
        do = "see that observers run, and that no snapshot is held (hold_s); photon table verify --collect"
        yield _warning("tables", tables.where, what, do)
    moved = "never moved" if old_s is None else f"moved {duration(old_s)} ago"
    said = f"{tables.where} answers; {tables.looked_at:,} cells looked at; the safe point was {moved}"
    yield _ok("tables", said)


def worst(said: Iterable[Finding]) -> Level:
    order = list(Level)
    return max((each.level for each in said), key=order.index, default=Level.OK)


__all__ = ["AREAS", "Finding", "Level", "Machine", "findings", "worst"]
