"""The durable files of one slot's join. A file is created only if its name is absent, and never replaced.

For batch N, below ``STATE/slots/SLOT/spark``:

plans/N            a batch's input; durable before any decision on it
parts/N-P.decided  the final decision of part P: rows to register, events that keep waiting, positions read
parts/N-P.result   the rows of the part that won
commits/N          the batch is done; the next one starts here. Readers see its records only after this
waiting/FILE       events without a verdict, written by the part that read them
rereads/N          an order to repeat decisions (``rereading``), from a command or the driver
rereads/N.ended    the order is done, or was cancelled
parts/N-P.RANDOM   files of a decision, written by one attempt under a unique name

Only the file ``claim`` is ever replaced: it has the undecided events for the watermark (``claim``).

Numbers have no gaps. Every ``WHOLE_EVERY``-th commit has the whole state, so a start reads few commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.versioned_file import read_present
from photon.idregistry.api import token_of
from photon.joiner.slot.identity import SPARK_NAME
from photon.outputs.output_places import SLOTS_DIRECTORY

CLAIM, REREADS = "claim", "rereads"
OF = "join"
ENDED = ".ended"
REREADS_KEPT = 100
PART_BITS = 12
PARTS_MAX = 1 << PART_BITS
WHOLE_EVERY = 100
DIGITS = 9

F = TypeVar("F", bound=msgspec.Struct)


def journal_of(state: Path, slot: str) -> Path:
    """Returns the journal's directory below the datacentre's state."""
    return state / SLOTS_DIRECTORY / slot / SPARK_NAME


class LogAt(msgspec.Struct, frozen=True, array_like=True):
    """How far one foreign log is decided. ``identity`` names the log; ``path`` is where it was last."""

    identity: str
    path: str
    header: bytes  # in force at ``offset``
    data_start: int
    splittable: bool
    offset: int  # the first undecided byte
    size: int  # bytes on disk when it was last read
    mtime_ns: int  # their last write
    ended: bool  # that reading ended with the log's end
    seen_ns: int  # when the log was last listed
    proof: bytes = b""  # ``listing.proof_at``; empty at its start


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Records of a log that begin in [``begin``, ``end``). If ``end`` is ``None``, up to the log's end when it was
    planned (``log.size``), or up to ``bytes_max`` bytes."""

    log: LogAt
    begin: int
    end: int | None
    bytes_max: int


class Rest(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of a file of waiting events."""

    file: str
    rows: list[int]


class GivenUp(msgspec.Struct, frozen=True, array_like=True):
    """An id that the registry gave up (protocol rule 14)."""

    digest: bytes
    generation: int
    time_ns: int  # event time of the formerly registered line
    tag: int  # tag of the formerly registered line


class Reread(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``rereads/N``: an order to decide the records of a time range, or with certain ids, again."""

    asked_ns: int
    from_ns: int = 0
    to_ns: int = 0  # exclusive
    pattern: str = ""  # a glob for the paths of logs; empty matches all
    ids: list[GivenUp] = []  # only these ids; otherwise the time range
    any_line: bool = False  # any line with one of these ids, not just the registered one


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``rereads/N.ended``: how the reread ended."""

    at_ns: int
    cancelled: bool = False
    events: int = 0  # requested events
    known: int = 0  # of these, events that had a verdict
    gone: list[str] = []  # paths of logs that were not read again


class RereadAt(msgspec.Struct, frozen=True, array_like=True):
    """The position of a reread: logs with lower identities are done, and the log ``identity`` up to ``offset``."""

    number: int = 0  # 0 means that none has begun
    identity: str = ""
    offset: int | None = None  # ``None``: up to its end
    events: int = 0  # as of ``Ended``
    known: int = 0
    gone: list[str] = []


class Part(msgspec.Struct, frozen=True, array_like=True):
    """The work of one task."""

    stretches: list[Stretch]
    waiting: list[Rest]


class Plan(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``plans/N``: the input of a batch."""

    number: int
    incarnation: int  # of the driver that made it
    at_ns: int  # its clock: events of a later time wait
    first_read_ns: int  # when the events of its stretches were first read, by two clocks
    # How far the primary logs were read, by two clocks; also NOTHING_READ_NS while no event may be declared
    # unmatched.
    read_past_ns: int
    parts: list[Part]
    reread: int = 0  # the number of the batch's reread; 0: none, its stretches are undecided

    def token(self, part: int, incarnation: int) -> int:
        """Returns the token under which an attempt of this incarnation registers a part."""
        return token_of(incarnation, self.number << PART_BITS | part)


class Reached(msgspec.Struct, frozen=True, array_like=True):
    """How far a stretch was read."""

    identity: str
    offset: int
    header: bytes
    ended: bool
    proof: bytes


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``parts/N-P.decided``: a part's decision. Fields name files in ``parts`` and ``waiting``; "" means no file."""

    staged: str = ""
    rejected: str = ""  # lines of records without id, key or time
    waiting: str = ""
    left: list[Rest] = []  # the plan's waiting events that keep waiting
    reached: list[Reached] = []
    counts: dict[str, int] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``parts/N-P.result``: the rows that won, as one bit per staged row, the first row lowest."""

    rows: int = 0
    won: bytes = b""
    late: str = ""  # the file with lines of events below the registry's boundary
    counts: dict[str, int] = {}


class Commit(msgspec.Struct, frozen=True, kw_only=True, tag_field="version", tag=1):
    """``commits/N``: the results of a batch, and where the next one starts."""

    number: int
    logs: list[LogAt]  # those that changed; all if ``whole``
    waiting: dict[str, list[int]]  # file -> its waiting rows, if changed; all if ``whole``
    whole: bool
    counts: dict[str, int]  # of all batches
    reread: RereadAt = RereadAt()


def folded(commits: Sequence[Commit]) -> Commit:
    """Merges commits, oldest first, into one whole commit. Files that only older commits name may be gone: their rows
    are settled."""
    logs: dict[str, LogAt] = {}
    waiting: dict[str, list[int]] = {}
    for commit in commits:
        if commit.whole:
            logs.clear()
            waiting.clear()
        logs |= {log.identity: log for log in commit.logs}
        waiting |= commit.waiting
    still = {name: rows for name, rows in waiting.items() if rows}
    return msgspec.structs.replace(commits[-1], logs=list(logs.values()), waiting=still, whole=True)


class JoinOf(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """The file ``join``: names the join to which the slot's directory belongs."""

    join: str
    datacentre: str
    rule: bytes = b""  # how ids are derived: ``photon.dispatcher.process.state_rule``; empty for a backfill


class JournalDamaged(PhotonError):
    """A file of the journal is missing or cannot be read."""


class Journal:
    """Reads and writes the files of a slot's journal."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        """``directory``: ``STATE/slots/SLOT/spark``."""
        self.disk, self.directory = disk, directory

    def prepare(self, of: JoinOf) -> None:
        """Makes the directories, durably. Raises UsageError if they belong to another join."""
        for name in ("plans", "parts", "commits", "waiting", REREADS):
            self.disk.make_dir(self.directory / name)
        known = self._put(self.directory / OF, of)
        if (known.join, known.datacentre) != (of.join, of.datacentre):
            raise UsageError(
                f"{self.directory}: is the state of join {known.join} in datacentre {known.datacentre}, not of "
                f"{of.join} in {of.datacentre}; name another state directory"
            )
        if known.rule != of.rule:
            raise UsageError(
                f"{self.directory}: was written under another key file or other rules for deriving id, key and time "
                "from a record; restore them"
            )

    def check_begun(self) -> None:
        """Raises JournalDamaged if this directory is gone. Call it first if the slot was opened before."""
        if not self.disk.exists(self.directory / OF):
            raise JournalDamaged(f"{self.directory}: is missing, but its slot was opened before; restore it")

    def check_commits(self, upto: int) -> None:
        """Raises JournalDamaged if the commit of batch ``upto``, or the one before the newest plan, is missing, since
        the next batch would then reuse a number. ``upto``: the newest batch that readers see; -1 if there is none."""
        before = max(upto, self.newest("plans") - 1)  # read first: another driver may still be at work
        if before > (newest := self.newest()):
            raise JournalDamaged(
                f"{self.directory / 'commits'}: ends with batch {newest}, but a later one is planned or published; "
                "restore it from a backup"
            )

    # -- names -------------------------------------------------------------------------------------------------
    def part_name(self, batch: int, part: int, what: str) -> str:
        return f"{batch:0{DIGITS}d}-{part:04d}.{what}"

    def part_path(self, name: str) -> Path:
        return self.directory / "parts" / name

    def waiting_path(self, name: str) -> Path:
        return self.directory / "waiting" / name

    def _numbered(self, what: str, number: int) -> Path:
        return self.directory / what / f"{number:0{DIGITS}d}"

    # -- plans, decisions, results, commits --------------------------------------------------------------------
    def put_plan(self, plan: Plan) -> Plan:
        """Stores a batch's plan. Returns the valid one: ``plan``, or the one already stored."""
        return self._put(self._numbered("plans", plan.number), plan)

    def plan(self, number: int) -> Plan | None:
        return self._read(self._numbered("plans", number), Plan)

    def put_decision(self, batch: int, part: int, decision: Decision) -> Decision:
        """Stores a part's decision. Returns the valid one: ``decision``, or the one already stored."""
        return self._put(self.part_path(self.part_name(batch, part, "decided")), decision)

    def decision(self, batch: int, part: int) -> Decision | None:
        return self._read(self.part_path(self.part_name(batch, part, "decided")), Decision)

    def put_result(self, batch: int, part: int, result: Result) -> Result:
        """Stores a part's result. Returns the valid one: ``result``, or the one already stored."""
        return self._put(self.part_path(self.part_name(batch, part, "result")), result)

    def result(self, batch: int, part: int) -> Result | None:
        return self._read(self.part_path(self.part_name(batch, part, "result")), Result)

    def put_commit(self, commit: Commit) -> Commit:
        """Stores a commit. Returns the valid one: ``commit``, or the one already stored."""
        return self._put(self._numbered("commits", commit.number), commit)

    def put_last(self, name: str, value: msgspec.Struct) -> None:
        """Replaces the file ``name``."""
        self.disk.replace(self.directory / name, msgspec.json.encode(value))

    def read_last(self, name: str, kind: type[F]) -> F | None:
        path = self.directory / name
        return read_present(self.disk, path, kind, _damaged) if self.disk.exists(path) else None

    def is_finished(self) -> bool:
        """True if every planned batch is committed and shown."""
        return self.newest("plans") <= self.newest() and not self.disk.names(self.directory / "parts")

    def newest(self, what: str = "commits") -> int:
        """Returns the newest number in this directory; -1 if there is none."""
        return max((int(name) for name in self.disk.names(self.directory / what) if name.isdigit()), default=-1)

    def is_committed(self, number: int) -> bool:
        return any(name.isdigit() and int(name) >= number for name in self.disk.names(self.directory / "commits"))

    def commits(self) -> list[Commit]:
        """Returns the newest whole commit and all later ones. Raises JournalDamaged."""
        numbers = [int(name) for name in self.disk.names(self.directory / "commits") if name.isdigit()]
        found: list[Commit] = []
        for number in reversed(numbers):
            commit = self._read(self._numbered("commits", number), Commit)
            if commit is None or (found and found[-1].number != number + 1):
                break
            found.append(commit)
            if commit.whole:
                return found[::-1]
        if numbers:
            raise JournalDamaged(f"{self.directory / 'commits'}: commits are missing; restore it from a backup")
        return []

    def forget_before(self, number: int) -> None:
        """Removes plans and commits that no start will read."""
        for what in ("plans", "commits"):
            for name in self.disk.names(self.directory / what):
                if int(name.lstrip(".").partition(".")[0]) < number:
                    self.remove(self.directory / what / name)

    def remove(self, path: Path) -> None:
        """Removes a file, even if a late attempt removes or renames it at the same time."""
        with suppress(FileNotFoundError):
            self.disk.remove(path)

    def parts(self) -> dict[int, list[str]]:
        """Returns the files in ``parts`` by batch, including unfinished files of a killed process."""
        found: dict[int, list[str]] = {}
        for name in self.disk.names(self.directory / "parts"):
            found.setdefault(int(name.lstrip(".").partition("-")[0]), []).append(name)
        return found

    def tidy_parts(self, newest: int) -> None:
        """Removes the files in ``parts`` of batches up to ``newest``, which readers see by now."""
        for number, names in self.parts().items():
            if number <= newest:
                # Results go last: so that a start never takes a part with a result for undecided.
                for name in sorted(names, key=lambda each: each.endswith((".decided", ".result"))):
                    self.remove(self.part_path(name))

    # -- rereads -----------------------------------------------------------------------------------------------
    def ask_reread(self, wanted: Reread) -> int:
        """Orders a reread and returns its number. Several processes may call it at once."""
        number = max(self.rereads(), default=0) + 1
        while not self.disk.create(self._numbered(REREADS, number), msgspec.json.encode(wanted)):
            number += 1
        return number

    def rereads(self) -> dict[int, bool]:
        """Returns the rereads in order: number -> True if it has ended."""
        names = {name for name in self.disk.names(self.directory / REREADS) if not name.startswith(".")}
        return {int(name): name + ENDED in names for name in sorted(names) if name.isdigit()}

    def is_searching(self) -> bool:
        """True while ids that were given up are searched for."""
        return any(bool(self.reread(number).ids) for number, ended in self.rereads().items() if not ended)

    def reread(self, number: int) -> Reread:
        """Reads the order of a reread. Raises JournalDamaged."""
        if (found := self._read(path := self._numbered(REREADS, number), Reread)) is None:
            raise JournalDamaged(f"{path}: is missing, but a batch was made for it; restore it")
        return found

    def ended(self, number: int) -> Ended | None:
        return self._read(self._ended(number), Ended)

    def end_reread(self, number: int, ended: Ended) -> Ended:
        """Records the end of a reread, and forgets the oldest rereads. Returns ``ended``, or the record already
        stored."""
        counts = self._put(self._ended(number), ended)
        over = [old for old, is_ended in list(self.rereads().items())[:-1] if is_ended]  # not the highest number
        by_people = [old for old in over if not self.reread(old).ids]
        for old in set(over) - set(by_people[-REREADS_KEPT:]):
            self.remove(self._numbered(REREADS, old))
            self.remove(self._ended(old))
        return counts

    def _ended(self, number: int) -> Path:
        return self._numbered(REREADS, number).with_suffix(ENDED)

    # -- inside ------------------------------------------------------------------------------------------------
    def _put(self, path: Path, value: F) -> F:
        if self.disk.create(path, msgspec.json.encode(value)):
            return value
        return read_present(self.disk, path, type(value), _damaged)

    def _read(self, path: Path, kind: type[F]) -> F | None:
        if not self.disk.exists(path):
            return None
        # A process that died while it put the file may not have made its name durable.
        self.disk.sync_dir(path.parent)
        return read_present(self.disk, path, kind, _damaged)


def _damaged(path: Path, why: str) -> JournalDamaged:
    return JournalDamaged(f"{path}: unreadable ({why}); restore it from the file system's backup")
