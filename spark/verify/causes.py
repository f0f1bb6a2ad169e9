"""Derives the causes of findings: files and logs that are gone or damaged, and output that was not read. Pure.

Each finding is about one event, but a deleted file causes a thousand findings. A cause names the file, the number of
its findings, and the one command to run next.
"""

from __future__ import annotations

import enum
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from photon.dispatcher.ledger import hour_name
from photon.outputs.every_file import CHECKSUM_WRONG
from photon.outputs.published import GONE
from photon.spark.verify.classify import FOREIGN, LogName


class CauseKind(enum.StrEnum):
    """The kind of a cause; explained in ``docs/verification.md``."""

    SLOT_NOT_READ = "slot-not-read"
    SLOT_GONE = "slot-gone"
    FILE_GONE = "file-gone"
    FILE_DAMAGED = "file-damaged"
    CHECKSUM_WRONG = "checksum-wrong"
    FILE_UNNAMED = "file-unnamed"
    LOG_GONE = "log-gone"
    LOG_DAMAGED = "log-damaged"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause. ``events``: number of findings it explains; ``alone``: it explains none, so it is a problem itself.
    Several datacentres or files are separated by commas."""

    kind: CauseKind
    datacentre: str
    what: str  # the affected file, log or slot
    events: int
    say: str  # one line
    command: str  # command to run next
    alone: bool = False


class FileTrouble(NamedTuple):
    """A published file that could not be read completely."""

    datacentre: str
    slot: str
    file: str  # its name on disk, relative to the output
    path: str
    why: str
    first: int | None = None  # hour of its first event, if known
    last: int | None = None

    @property
    def kind(self) -> str:
        return self.file.partition("/")[0]


class LostGroup(NamedTuple):
    """Lost records whose owner is known from the registry's entry."""

    datacentre: str
    slot: str
    kind: str
    hour: int | None


class UnnamedLines(NamedTuple):
    """Lines of a file that no manifest names. ``copies``: how many of those in verified hours also exist in another
    file."""

    verified: int = 0
    copies: int = 0
    others: int = 0  # lines of other hours, not compared
    first: int | None = None  # the first of these hours, since 1970, and the last one
    last: int | None = None


class UnnamedFile(NamedTuple):
    """A file in an output directory that no manifest names."""

    datacentre: str
    file: str
    path: str
    lines: UnnamedLines
    read: bool = True


class LogGroup(NamedTuple):
    """Records whose source is missing. ``elsewhere``: another datacentre's logs have it."""

    side: str
    datacentre: str
    log: str
    elsewhere: bool


class LogTrouble(NamedTuple):
    datacentre: str
    side: str
    log: str
    path: str
    at: int
    why: str


class LogEvidence(enum.Enum):
    """How it is known that a log existed."""

    DISPATCHER = "was read by the dispatcher and is gone"
    EARLIER = "was read by an earlier night and is gone"
    NAMED = "is named by records but missing"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Makes the commands to run next, from their files and hours."""

    config: str = "photon.toml"
    report: str = "report"
    begin: str = "yesterday"
    end: str = "today"
    join: str | None = None
    work: str | None = None

    def verify(self, first: int | None = None, last: int | None = None) -> str:
        """Returns the command that verifies hours ``first`` to ``last`` since 1970; by default the hours of this
        report."""
        begin, end = self.begin, self.end
        if first is not None and last is not None:
            begin, end = hour_name(first), hour_name(last + 1)
        more = ["--join", self.join] if self.join else []
        return _shell("photon spark verify --config", self.config, "--from", begin, "--to", end, "--report",
                      self.report, *more, *self._work())  # fmt: skip

    def recover(self, how: str = "--dry-run") -> str:
        return _shell("photon spark recover --config", self.config, "--report", self.report) + f" {how}"

    def problems(self) -> str:
        return _shell("photon spark problems", self.report)

    def acknowledge(self) -> str:
        return _shell("photon spark acknowledge", self.report, *self._work()) + (
            " --event EVENT --class CLASS --who NAME --why TEXT"
        )

    def status(self) -> str:
        return _shell("photon status --config", self.config)

    def _work(self) -> list[str]:
        return ["--work", self.work] if self.work else []

    def slot(self, name: str) -> str:
        return _shell("photon status slots", name, "--config", self.config)


@dataclass(slots=True)
class Evidence:
    """The input from which the causes of a night are derived."""

    files: Sequence[FileTrouble] = ()
    # Datacentre -> readable slot -> number of its files.
    slots: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lost: Mapping[LostGroup, int] = field(default_factory=dict)
    unnamed: Sequence[UnnamedFile] = ()
    logs: Mapping[LogGroup, int] = field(default_factory=dict)
    known: Mapping[LogName, LogEvidence] = field(default_factory=dict)
    damaged: Sequence[LogTrouble] = ()


Attributed = dict[LostGroup, str]  # lost records -> the reason


def causes_of(evidence: Evidence, commands: CommandLine) -> tuple[list[Cause], Attributed]:
    """Returns the causes, the one that explains the most findings first, and what each finding is attributed to."""
    lost, attributed = _lost(evidence, commands)
    found = [*lost, *_logs(evidence, commands)]
    found += [_unnamed(each, commands) for each in evidence.unnamed]
    return sorted(found, key=lambda each: -each.events), attributed


# -- output --------------------------------------------------------------------------------------------------------
def _lost(evidence: Evidence, commands: CommandLine) -> tuple[list[Cause], Attributed]:
    attributed: Attributed = {}
    events = Counter[str]()
    files = Counter[tuple[FileTrouble, ...]]({(each,): 0 for each in evidence.files})
    not_read: dict[str, tuple[str, str]] = {}
    for group, count in evidence.lost.items():
        if group.slot not in evidence.slots.get(group.datacentre, ()):
            say = f"output of slot {group.slot} was not read"
            not_read[say] = group.datacentre, group.slot
            attributed[group] = say
            events[say] += count
        elif own := _suspects(group, evidence.files):
            attributed[group] = ", ".join(f"{each.file}: {each.why}" for each in own)
            files[own] += count
    found = [
        _not_read(say, *where, events[say], commands, known=where[0] in evidence.slots)
        for say, where in not_read.items()
    ]
    return found + _files(files, evidence.slots, commands), attributed


def _suspects(group: LostGroup, files: Iterable[FileTrouble]) -> tuple[FileTrouble, ...]:
    """Returns the files that may have held these records: those of the same kind and hour, as far as known."""
    own = [each for each in files if (each.datacentre, each.slot) == (group.datacentre, group.slot)]
    own = [each for each in own if CHECKSUM_WRONG not in each.why]
    near = [each for each in own if each.first is None or each.last is None or group.hour is None
            or each.first <= group.hour <= each.last]  # fmt: skip
    return tuple(
        [each for each in near if each.kind == group.kind] or [each for each in near if each.kind == "joined"]
    )


def _not_read(say: str, datacentre: str, slot: str, events: int, commands: CommandLine, *, known: bool) -> Cause:
    why = (
        "its state is not below the datacentre's state/slots"
        if known
        else "the deployment file has no such datacentre"
    )
    return Cause(
        kind=CauseKind.SLOT_NOT_READ, datacentre=datacentre, what=slot, events=events, command=commands.slot(slot),
        say=f"{say}: {_events(events)}; {datacentre}: {why}",
    )  # fmt: skip


def _files(
    files: Mapping[tuple[FileTrouble, ...], int], slots: Mapping[str, Mapping[str, int]], commands: CommandLine
) -> list[Cause]:
    """Groups files into causes. All files of a slot are one cause if all are gone; so are files that may each have
    held the same event."""
    gone = Counter((each.datacentre, each.slot) for (each, *more) in files if not more and GONE in each.why)
    whole = {at for at, count in gone.items() if count > 1 and count >= slots.get(at[0], {}).get(at[1], 0)}
    found, of_slots = [], Counter[tuple[str, str]](dict.fromkeys(whole, 0))
    together = {each for own, count in files.items() if len(own) > 1 and count for each in own}
    for own, count in files.items():
        at = own[0].datacentre, own[0].slot
        if at in whole:
            of_slots[at] += count
        elif count or own[0] not in together:
            found.append(_file(own, count, commands))
    return found + [
        Cause(
            kind=CauseKind.SLOT_GONE, datacentre=datacentre, what=slot, events=count, command=commands.slot(slot),
            say=f"all {gone[datacentre, slot]:,} files of slot {slot} are gone: {_events(count)}; mount its disk",
        )
        for (datacentre, slot), count in of_slots.items()
    ]  # fmt: skip


def _file(own: Sequence[FileTrouble], events: int, commands: CommandLine) -> Cause:
    what, first = ", ".join(each.file for each in own), own[0]
    if len(own) > 1:
        kind, said, command = CauseKind.FILE_DAMAGED, "are gone or damaged", commands.recover()
    elif CHECKSUM_WRONG in first.why:
        kind, said = CauseKind.CHECKSUM_WRONG, first.why
        new = f"{first.path}.new"
        command = f"{_shell('gzip -cd', first.path)} | {_shell('gzip >', new)} && {_shell('mv', new, first.path)}"
    elif GONE in first.why:
        kind, said, command = CauseKind.FILE_GONE, GONE, commands.recover()
    else:
        kind, said, command = CauseKind.FILE_DAMAGED, first.why, commands.recover()
    say = f"{'files' if len(own) > 1 else 'file'} {what} {said}: {_events(events)}"
    if kind is CauseKind.CHECKSUM_WRONG:
        say = f"{what}: {said}"
    return Cause(kind=kind, datacentre=first.datacentre, what=what, events=events, say=say, command=command)


def _unnamed(file: UnnamedFile, commands: CommandLine) -> Cause:
    lines = file.lines
    own = lines.verified - lines.copies
    said = f"{lines.verified:,} lines: {lines.copies:,} are copies of records in the output, {own:,} are nowhere else"
    if not file.read:
        said = "its lines are of hours that were not verified"
    elif lines.others:
        said += f" ({lines.others:,} more lines are of other hours: verify those, too)"
    output = file.path.rpartition("/" + file.file.partition("/")[0] + "/")[0]
    away = file.read and not own and not lines.others
    move = _shell("mv -n", file.path, output.rpartition("/")[0] + "/")
    return Cause(
        kind=CauseKind.FILE_UNNAMED, datacentre=file.datacentre, what=file.file, events=0, alone=True,
        say=f"{file.file}: not named by the manifest, {said}"
        + ("; restore the slot's manifest.jsonl from a copy" if own else ""),
        command=move if away else commands.verify(lines.first, lines.last),
    )  # fmt: skip


# -- raw logs ------------------------------------------------------------------------------------------------------
def _logs(evidence: Evidence, commands: CommandLine) -> list[Cause]:
    damaged = {(each.side, each.datacentre, each.log): each for each in evidence.damaged}
    behind = Counter[LogName]()
    missing: dict[tuple[str, str, bool], Counter[str]] = {}
    for group, count in evidence.logs.items():
        name = group.side, group.datacentre, group.log
        if name in damaged and name not in evidence.known:
            behind[name] += count
            continue
        # If the events are in no datacentre's logs, one log is missing from all of them.
        at = group.side, group.log if not group.elsewhere else f"{group.log}\0{group.datacentre}", group.elsewhere
        missing.setdefault(at, Counter())[group.datacentre] += count
    found = [
        _log(side, log.partition("\0")[0], by, evidence.known, commands, elsewhere=elsewhere)
        for (side, log, elsewhere), by in missing.items()
    ]
    return found + [_damaged(each, behind[name], commands) for name, each in damaged.items()]


def _log(
    side: str,
    log: str,
    by: Mapping[str, int],
    known: Mapping[LogName, LogEvidence],
    commands: CommandLine,
    *,
    elsewhere: bool,
) -> Cause:
    told = [known.get((side, datacentre, log), LogEvidence.NAMED) for datacentre in by]
    how = min(told, key=list(LogEvidence).index)
    where, events = ", ".join(sorted(by)), sum(by.values())
    said = how.value if side == FOREIGN or how is not LogEvidence.DISPATCHER else "was read and is gone"
    place = f"in {where} only" if elsewhere else "in every datacentre that has its events"
    return Cause(
        kind=CauseKind.LOG_GONE, datacentre=where, what=log, events=events, command=commands.verify(),
        say=f"{side} log {log} {said} {place}: {_events(events)}; restore it, then verify again",
    )  # fmt: skip


def _damaged(log: LogTrouble, events: int, commands: CommandLine) -> Cause:
    whole = CHECKSUM_WRONG in log.why
    said = log.why if whole else f"cannot be read from byte {log.at:,} on ({log.why}): {_events(events)}"
    return Cause(
        kind=CauseKind.LOG_DAMAGED, datacentre=log.datacentre, what=log.log, events=events, alone=whole,
        say=f"{log.side} log {log.log}: {said}; restore it from a copy",
        command=_shell("gzip -t", log.path) if whole else commands.verify(),
    )  # fmt: skip


def _events(count: int) -> str:
    return f"{count:,} {'event' if count == 1 else 'events'}"


def _shell(command: str, *words: str) -> str:
    return " ".join([command, *map(shlex.quote, words)])


__all__ = ["Cause", "CauseKind", "CommandLine", "Evidence", "causes_of"]
