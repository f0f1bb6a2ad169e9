"""The rules of ``photon doctor``: find present and future problems in a look, and say where and what to do. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import NamedTuple

from photon.config.clock import NS_PER_S
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.config.words import duration, many, size
from photon.fleet.here import LOOPBACK, Directory, Here, Logs
from photon.fleet.look import Look
from photon.fleet.processes import Process, listening, survives
from photon.idregistry.core.clock_offsets import middle_s, surely_apart_s
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.operate.findings import Expected
from photon.idregistry.operate.findings import findings as of_registry

FREE_BYTES_LOW, FREE_SHARE_LOW = 1 << 30, 0.05  # less free space than one of these is a warning
FREE_BYTES_NONE = 100 << 20  # less free space than this is a problem
FREE_BYTES_ENOUGH = 50 << 30  # with this much free space, the share is not checked
SYNC_SLOW_S, SYNC_BAD_S = 0.1, 1.0  # each batch of a joiner and each entry of the registry waits for one fsync
EXPIRES_WITHIN = timedelta(days=30)
FILES_OF_A_PROCESS = 512  # files that a process opens in addition to its logs: sockets, segments, outputs
FILES_USED_SHARE = 0.8
BOUNDARY_SLACK_S = 3600.0  # how far the boundary may lag behind the retention
GROUP_AND_OTHERS, OTHERS = 0o077, 0o004
NAMED_MAX = 5
SAFE_POINT_ROUNDS = 3  # a safe point older than this many times tables.keep is reported
STILL_S = 60.0  # a watermark that has not moved for this long is reported


class Level(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # works today, but needs attention
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    where: str = ""
    do: str = ""
    area: str = ""


@dataclass(frozen=True, slots=True)
class _Facts:
    file: str
    here: Here
    settings: Settings
    look: Look
    now: datetime

    @property
    def at_s(self) -> float:
        return self.now.timestamp()


def findings(file: str, look: Look, now: datetime) -> list[Finding]:
    """Returns the findings, ordered by area. An area without problems gets one line that says what was checked.
    ``look`` must include this machine."""
    here, settings = look.here, look.settings
    assert here is not None
    facts = _Facts(file, here, settings or Settings(), look, now)
    said: list[Finding] = []
    for area in AREAS if settings is not None else OF_ANY_MACHINE:
        found = [replace(each, area=area) for each in RULES[area](facts)]
        wrong = [each for each in found if each.level is not Level.OK]
        said += sorted(wrong, key=lambda each: each.level is not Level.PROBLEM) or found
    return said


def _problem(where: str, what: str, do: str) -> Finding:
    return Finding(Level.PROBLEM, what, where, do)


def _warning(where: str, what: str, do: str) -> Finding:
    return Finding(Level.WARNING, what, where, do)


def _ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - NAMED_MAX
    return ", ".join(listed[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


# -- configuration, versions -----------------------------------------------------------------------------------------
def _configuration(facts: _Facts) -> Iterator[Finding]:
    here, settings, key = facts.here, facts.settings, facts.here.key
    for mistake in here.mistakes:
        yield _problem(facts.file, mistake, "correct the file, then check it with photon doctor config")
    for state in here.states:
        yield _problem(state.path, state.problem, "see docs/operations; never delete it just to get started")
    if key is not None and key.problem:
        yield _problem(key.path, key.problem, f"head -c 32 /dev/urandom > {key.path}")
    elif key is not None and key.mode & GROUP_AND_OTHERS:
        what = f"the digest key has mode {key.mode:04o}, so other users of this machine can read it"
        yield _warning(key.path, what, f"chmod 600 {key.path}")
    for each in facts.look.heard:
        if waits := each.details.get("unmatched_waits"):
            what = f"currently declares no event unmatched: {waits}"
            do = "restart the processes that have an older file (docs/operations/change-a-join.md)"
            yield _warning(each.process.title, what, do)
    if facts.look.settings is None:
        yield _ok("no deployment file was given: only this machine was checked")
        return
    told = f"joins {', '.join(sorted(settings.join))}; " if settings.join else ""
    yield _ok(f"{told}adapters load; {'; '.join(survives(settings)) or 'one datacentre'}")


def _versions(facts: _Facts) -> Iterator[Finding]:
    machine = facts.here.machine
    if not machine.python_fits:
        what = f"Python {machine.python}: Photon needs 3.11 or later"
        yield _problem("this machine", what, "run Photon with a newer Python")
    for package in machine.packages:
        if not package.found:
            what = f"package {package.name} is not installed ({package.wanted or 'any version'} is needed)"
            yield _problem("this machine", what, f"pip install '{package.name}{package.wanted}'")
        elif not package.fits:
            what = f"package {package.name} is {package.found}, {package.wanted} is needed"
            yield _warning("this machine", what, f"pip install '{package.name}{package.wanted}'")
    by_version: dict[str, list[str]] = {}
    for who, sample in facts.look.now.each("photon_build_info"):
        by_version.setdefault(sample.labels.get("version", ""), []).append(who.title)
    if len(by_version) > 1:
        what = "; ".join(f"{version}: {_some(names)}" for version, names in sorted(by_version.items()))
        yield _warning("processes", f"several releases run: {what}", "finish the upgrade")
    elif by_version and machine.version not in by_version:
        what = f"this command is release {machine.version}, the processes run {next(iter(by_version))}"
        yield _warning("this machine", what, "use the command of the same release, or finish the upgrade")
    adapters: dict[str, dict[str, list[str]]] = {}
    for each in facts.look.heard:
        if code := each.details.get("adapter"):
            named = adapters.setdefault(each.details.get("join", ""), {}).setdefault(code, [])
            named.append(f"{each.process.title} of {each.process.datacentre}")
    for join, codes in sorted(adapters.items()):
        if len(codes) > 1:
            what = "; ".join(f"{code}: {_some(names)}" for code, names in sorted(codes.items()))
            yield _warning(f"join {join}", f"several adapters run: {what}", "finish the upgrade")
        else:
            yield _ok(f"join {join}: adapter {next(iter(codes))}")
    run = f", the same as all {sum(map(len, by_version.values()))} processes that answer" if by_version else ""
    yield _ok(f"Photon {machine.version}{run}; Python {machine.python}, {len(machine.packages)} packages")


# -- clocks ----------------------------------------------------------------------------------------------------------
class _Clock(NamedTuple):
    who: Process
    ahead_s: float  # compared with this machine's clock
    error_s: float  # may be off by this much in either direction


def _clocks(facts: _Facts) -> Iterator[Finding]:
    """Compares each clock with the median of all, because this machine's own may be the wrong one."""
    allowed = facts.settings.clock.uncertainty
    one_machine = all(address.startswith(LOOPBACK) for address in listening(facts.settings))
    if facts.here.machine.synchronised is False and not one_machine:
        what = "the kernel says that this machine's clock is not synchronised"
        yield _warning("this machine", what, "run chrony or ntpd; clocks must differ by less than clock.uncertainty")
    told = [
        _Clock(each.process, said - (each.asked_s + each.answered_s) / 2, (each.answered_s - each.asked_s) / 2)
        for each in facts.look.heard
        if (said := facts.look.now.of(each.process, "photon_clock_seconds")) is not None
    ]
    if not told:
        yield _ok(f"no process reports its time; clock.uncertainty is {allowed:g} s")
        return
    middle = median([each.ahead_s for each in told])
    within = middle_s((each.ahead_s, each.error_s) for each in told)
    for each in told:
        least = surely_apart_s(each.ahead_s, each.error_s, within)
        if least > allowed / 2:
            yield _clock(each, middle, allowed, least)
    if surely_apart_s(0.0, 0.0, within) > allowed:
        what = f"this machine's clock is {abs(middle):.1f} s {'behind' if middle > 0 else 'ahead of'} the processes'"
        yield _warning("this machine", what, f"synchronise the clock: clock.uncertainty is {allowed:g} s")
    yield from _between(told, allowed)
    worst = max(abs(each.ahead_s - middle) for each in told)
    yield _ok(f"{len(told)} processes within {worst:.3f} s of their median; clock.uncertainty is {allowed:g} s")


def _clock(each: _Clock, middle: float, allowed: float, least: float) -> Finding:
    off = each.ahead_s - middle
    what = f"its clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the others' median"
    make = _problem if least > allowed else _warning
    return make(each.who.title, what, f"synchronise its machine: clock.uncertainty is {allowed:g} s")


def _between(told: list[_Clock], allowed: float) -> Iterator[Finding]:
    by_place: dict[str, list[_Clock]] = {}
    for each in told:
        by_place.setdefault(each.who.datacentre, []).append(each)
    places = sorted((name, median([each.ahead_s for each in some]), max(each.error_s for each in some))
                    for name, some in by_place.items() if name)  # fmt: skip
    for at, (one, ahead, error) in enumerate(places):
        for other, other_ahead, other_error in places[at + 1 :]:
            apart = ahead - other_ahead
            if abs(apart) - error - other_error > allowed:
                what = f"the clocks of {one} are {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} {other}'s"
                do = "synchronise both with the same time servers; events may seem to come from the future"
                yield _problem(f"{one}, {other}", what, do)


# -- disks, logs, descriptors ----------------------------------------------------------------------------------------
def _disks(facts: _Facts) -> Iterator[Finding]:
    here = facts.here
    for each in here.directories:
        yield from _directory(each)
    slowest = max((each.sync_s for each in here.directories if not each.problem), default=0.0)
    least = min((each.free for each in here.directories if not each.problem), default=0)
    if not here.directories:
        yield _ok("no directory of the deployment is on this machine")
        return
    apart = [
        state.datacentre
        for state in here.directories
        for output in here.directories
        if (state.what, output.what) == ("state", "output")
        and state.datacentre == output.datacentre
        and state.device != output.device
    ]
    note = f"; state and output of {_some(apart)} are on different file systems" if apart else ""
    directories = many(len(here.directories), "directory", "directories")
    said = f"{directories}, at least {size(least)} free, fsync within {slowest * 1000:.0f} ms"
    yield _ok(said + note)


def _directory(each: Directory) -> Iterator[Finding]:
    where = f"{each.what} of {each.datacentre}: {each.path}" if each.datacentre else f"{each.what}: {each.path}"
    if each.problem:
        yield _problem(where, each.problem, "use a local directory that Photon's user can write")
        return
    share = each.free / max(each.size, 1)
    free = f"{size(each.free)} free, {share:.1%}"
    if each.free < FREE_BYTES_NONE:
        yield _problem(where, free, "make room at once: a full disk stops the processes that write there")
    elif each.free < FREE_BYTES_LOW or (share < FREE_SHARE_LOW and each.free < FREE_BYTES_ENOUGH):
        yield _warning(where, free, "make room: a full disk stops the processes that write there")
    if each.network and each.what != "output":
        what = f"is on a network file system ({each.file_system}), whose locks and fsync cannot be relied on"
        yield _problem(where, what, "put it on a local disk")
    if each.sync_s > SYNC_SLOW_S:
        make = _problem if each.sync_s > SYNC_BAD_S else _warning
        what = f"an fsync takes {each.sync_s * 1000:,.0f} ms; each batch waits for one"
        yield make(where, what, "use a faster disk, or one with less load")


def _logs(facts: _Facts) -> Iterator[Finding]:
    for each in facts.here.logs:
        yield from _side(each)
    for who in facts.look.now:
        if keys := facts.look.now.of(who, "photon_eventstore_ambiguous_keys_total"):
            what = f"{many(round(keys), 'key has', 'keys have')} several different primary events"
            do = "photon status eventstore shows one; primary.duplicates decides what happens to such events"
            yield _warning(who.title, what, do)
    total = sum(each.matched for each in facts.here.logs)
    here = ", ".join(dict.fromkeys(each.datacentre for each in facts.here.logs))
    yield _ok(f"{many(total, 'log file')} of {here}" if here else "no log directory is on this machine")


def _side(each: Logs) -> Iterator[Finding]:
    where = f"{each.side} logs of {each.datacentre}: {each.path}"
    if each.problem:
        yield _problem(where, each.problem, "create the directory, or correct its path in the file")
        return
    if each.unreadable:
        what = f"{many(len(each.unreadable), 'file')} cannot be read: {_some(each.unreadable)}"
        yield _problem(where, what, "make them readable for Photon's user")
    for text, count in each.absent_keys.items():
        have = many(count, "sampled record has", "sampled records have")
        what = f"{have} the key {text!r}, which usually means that there is no value"
        table = f"[join.{each.join}.{each.side}]"
        yield _warning(where, what, f"add {text!r} to absent in {table} unless it is a real key")
    if not each.matched:
        patterns = ", ".join(each.patterns)
        what = f"no file matches {patterns}" + (
            f"; {many(each.others, 'file matches', 'files match')} none of the patterns" if each.others else ""
        )
        yield _warning(where, what, f"write logs there, or change {each.side}_files in the join")


def _output(facts: _Facts) -> Iterator[Finding]:
    here = facts.here
    for each in here.ranges:
        if each.marked:
            continue
        make = _warning if each.moved else _problem
        why = "is gone: archived, or lost" if each.moved else each.why
        what = f"{why}; readers that have not read its bytes {each.start:,} to {each.end:,} stop there"
        do = "restore it from a copy, or run photon spark verify, then photon spark recover with its report"
        yield make(each.path, what, do)
    skipped = [f"{each.path} from {each.start:,} to {each.end:,} ({each.why})" for each in here.ranges if each.marked]
    said = f"; readers skip {many(len(skipped), 'damaged range')}: {_some(skipped)}" if skipped else ""
    yield _ok(f"all output published on this machine is readable{said}")


def _descriptors(facts: _Facts) -> Iterator[Finding]:
    machine, now = facts.here.machine, facts.look.now
    logs: dict[str, int] = {}
    for each in facts.here.logs:
        logs[each.datacentre] = max(logs.get(each.datacentre, 0), each.matched)
    needed = max(logs.values(), default=0) + FILES_OF_A_PROCESS
    if machine.files_soft < needed:
        logs_said = many(needed - FILES_OF_A_PROCESS, "log")
        what = f"a process may open {machine.files_soft:,} files; with {logs_said} it may need {needed:,}"
        make = _warning if machine.files_hard >= needed else _problem
        yield make("this machine", what, f"ulimit -n {2 * needed}, or LimitNOFILE= in the unit")
    for who in now:
        used, most = now.of(who, "process_open_fds") or 0.0, now.of(who, "process_max_fds")
        if most and used > FILES_USED_SHARE * most:
            what = f"has {used:,.0f} of at most {most:,.0f} files open"
            yield _problem(who.title, what, "raise its limit (ulimit -n) and restart it")
    yield _ok(f"a process may open {machine.files_soft:,} files and may need {needed:,}")


# -- ports, certificates, registry -----------------------------------------------------------------------------------
def _ports(facts: _Facts) -> Iterator[Finding]:
    running = facts.look.running
    for port in facts.here.ports:
        if port.state == "taken":
            what = f"{port.who} should listen here, but another process does" + (
                f" ({port.problem})" if port.problem else ""
            )
            yield _problem(port.address, what, "stop that process (ss -ltnp shows it), or use another port")
    for each in facts.look.heard if running else ():
        if not each.up:
            what = f"does not answer at {each.process.address}: {each.problem}"
            yield _problem(each.process.title, what, "start it (photon up), or see its log")
    counts = Counter(port.state for port in facts.here.ports)
    said = ", ".join(f"{counts[name]} {name}" for name in ("ours", "free", "elsewhere") if counts[name])
    said = said or "no port is configured"
    yield _ok(f"{said}{'' if running else '; no process of the deployment answers'}")


def _certificates(facts: _Facts) -> Iterator[Finding]:
    if facts.settings.tls is None:
        yield _ok("no [tls]: connections are plain text, which is safe only on a machine that nobody else uses")
        return
    there = [pair for pair in facts.here.pairs if pair.there]
    if not there:
        where = facts.here.pairs[0].path if facts.here.pairs else facts.file
        yield _problem(where, "has no certificates", "photon certs for FILE")
    elif facts.look.unasked:
        yield _problem(
            facts.file, facts.look.unasked, "photon certs for FILE, or run this on the machine that has them"
        )
    for pair in there:
        if pair.problem:
            yield _problem(pair.path, pair.problem, "photon certs for FILE --force, then restart")
        elif pair.ends is not None and pair.ends - facts.now < EXPIRES_WITHIN:
            what = f"expires on {pair.ends:%Y-%m-%d}"
            yield _warning(pair.path, what, "photon certs for FILE --renew, then restart its processes")
        if pair.key_mode & GROUP_AND_OTHERS:
            what = f"its private key has mode {pair.key_mode:04o}"
            make = _problem if pair.key_mode & OTHERS else _warning
            yield make(pair.path, what, f"chmod 600 {pair.path.removesuffix('.crt')}.key")
    missing = [pair.identity for pair in facts.here.pairs if not pair.there]
    note = f"; not on this machine: {_some(missing)}" if missing else ""
    first = min((pair.ends for pair in there if pair.ends is not None), default=None)
    yield _ok(
        f"{many(len(there), 'certificate is', 'certificates are')} here, the next expires on {first:%Y-%m-%d}{note}"
        if first
        else note
    )


def _registry(facts: _Facts) -> Iterator[Finding]:
    found, settings = facts.look.replicas, facts.settings
    replicas = {name: each.address for name, each in settings.registry.replicas.items()}
    up = sum(each.reply is not None for each in found.values())
    if not up and not facts.look.running:
        asked = "not asked" if facts.look.unasked else f"{many(len(replicas), 'replica')}, none answers"
        yield _ok(asked)
        return
    try:
        for each in of_registry(found, Expected(replicas, settings.clock.uncertainty), ()) if found else ():
            make = _problem if each.level == "error" else _warning
            yield make(each.where, each.what, each.do)
    except PhotonError as error:
        yield _problem("registry", str(error), "photon doctor registry")
    retention_s = settings.registry.retention
    if retention_s is not None:
        yield from _boundaries(facts, retention_s)
    kept = "permanently" if retention_s is None else f"for {retention_s / 3600:,.1f} h"
    yield _ok(f"{up} of {len(replicas)} replicas answer; ids are kept {kept}")


def _boundaries(facts: _Facts, retention_s: float) -> Iterator[Finding]:
    """Checks for each shard the furthest boundary that any replica has applied."""
    replies = [each.reply for each in facts.look.replicas.values() if each.reply is not None]
    furthest: dict[int, int] = {}
    for group in (group for reply in replies for group in reply.groups):
        furthest[group.group] = max(furthest.get(group.group, NO_BOUNDARY), group.boundary_ns)
    for shard, at_ns in sorted(furthest.items()):
        age_s = facts.at_s - at_ns / NS_PER_S
        slack_s = facts.settings.clock.uncertainty + BOUNDARY_SLACK_S
        if shard and at_ns != NO_BOUNDARY and age_s > retention_s + slack_s:
            what = f"its boundary is {age_s / 3600:,.1f} h old, but retention is {retention_s / 3600:,.1f} h"
            do = "check if its leader's clock is rejected: photon doctor registry"
            yield _warning(f"shard {shard}", what, do)


def _watermarks(facts: _Facts) -> Iterator[Finding]:
    if not facts.look.running:
        yield _ok("not checked: nothing runs, or nothing was asked")
        return
    behind: list[float] = []
    for each in facts.look.watermarks:
        pair, patience_s = each.pair, facts.settings.join[each.join].unmatched_after
        if pair is None or pair.percentile_ns is None:
            continue
        behind.append(facts.at_s - pair.percentile_ns / NS_PER_S)
        still_s = facts.at_s - each.percentile_moved_ns / NS_PER_S
        exact_s = 0.0
        if pair.exact_ns is not None and patience_s is not None:  # events may wait for their primary event
            exact_s = facts.at_s - each.exact_moved_ns / NS_PER_S - patience_s
        if max(still_s, exact_s) > STILL_S:
            which = "the percentile watermark" if still_s > STILL_S else "the exact watermark"
            held = f"; held back by: {_some(pair.held_by)}" if pair.held_by else ""
            what = f"{which} has not moved for {max(still_s, exact_s):,.0f} s{held}"
            do = "find out what holds it back: photon watermark, photon status lag, docs/watermarks.md"
            yield _warning(each.datacentre, what, do)
    yield _ok(f"at most {max(behind):,.0f} s behind" if behind else "there is no watermark yet")


def _computations(facts: _Facts) -> Iterator[Finding]:
    known = [each for each in facts.look.of("compute") if each.up]
    for each in known:
        for alarm in each.details.get("computing", {}).get("alarms", ()):
            yield _warning(each.process.title, alarm["what"], alarm["todo"])
    said = f"{len(known)} running, watermarks move, no records are put aside"
    yield _ok(said if known else "none configured, or none asked")


def _tables(facts: _Facts) -> Iterator[Finding]:
    tables = facts.here.tables
    if tables is None:
        return
    if tables.problem:
        yield _problem(tables.where, tables.problem, "start the store; see photon status processes")
        return
    if tables.oracle_problem:
        what = f"no timestamps are handed out, so no transaction can start: {tables.oracle_problem}"
        yield _problem("oracle", what, "see photon status oracle; a majority of the replicas must answer")
    if tables.stuck:
        what = f"{many(tables.stuck, 'cell waits', 'cells wait')} for observers; {tables.stuck_at} makes no progress"
        do = "check that observers run (photon serve observe, photon table observe) without exceptions in their logs"
        yield _warning(tables.where, what, do)
    if tables.old_locks:
        what = f"{many(len(tables.old_locks), 'lock')} of dead or slow clients: {_some(tables.old_locks)}"
        yield _warning(tables.where, what, "see photon table scan --locks; reading these cells resolves the locks")
    old_s = tables.safe_point_s
    if tables.observed and old_s is not None and old_s > tables.keep_s * SAFE_POINT_ROUNDS:
        what = f"the safe point last moved {duration(old_s)} ago, so old versions accumulate"
        do = "check that observers run and no snapshot is held (hold_s), or run photon table verify --collect"
        yield _warning(tables.where, what, do)
    moved = "has never moved" if old_s is None else f"moved {duration(old_s)} ago"
    said = f"{tables.where} answers; {tables.looked_at:,} cells checked; the safe point {moved}"
    yield _ok(said)


def worst(said: Iterable[Finding]) -> Level:
    order = list(Level)
    return max((each.level for each in said), key=order.index, default=Level.OK)


RULES: Mapping[str, Callable[[_Facts], Iterator[Finding]]] = {
    "configuration": _configuration,
    "versions": _versions,
    "clocks": _clocks,
    "disks": _disks,
    "logs": _logs,
    "output": _output,
    "descriptors": _descriptors,
    "ports": _ports,
    "certificates": _certificates,
    "registry": _registry,
    "watermarks": _watermarks,
    "computations": _computations,
    "tables": _tables,
}
AREAS = tuple(RULES)
OF_ANY_MACHINE = ("configuration", "versions", "descriptors")  # areas that need no deployment file
