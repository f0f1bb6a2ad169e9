"""Expected joined output of logs: a plain reading of both, which shares no code with Photon.

It is shown the logs at each run, and afterwards the run's output. Pure: files come as bytes.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Outcomes of read lines in the ledger.
SUMMED = "joined", "filtered", "unmatched", "late", "rejected", "elsewhere", "duplicate", "pending"
TAKEN = "joined", "unmatched"  # kinds that take an id


class Shape(NamedTuple):
    """Format of both logs of a world. A foreign line ends in its id: torn, it may name another event."""

    name: str
    primary: str
    foreign: str  # tables of the configuration
    header: dict[str, bytes]  # first line of each file, by side


def _csv(*columns: str) -> str:
    return f'format = "csv"\ncolumns = {json.dumps(columns)}'


_COLUMNS = {"primary": ("key", "text"), "foreign": ("at", "key", "note", "id")}
_PATTERNS = {
    "primary": "(?P<key>q[0-9]+) (?P<text>[a-z0-9]*)$",
    "foreign": "(?P<at>[0-9]+) (?P<key>q[0-9]+) (?P<note>[a-z0-9]*) (?P<id>c[0-9]+)$",
}
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("jsonl", 'format = "jsonl"', 'format = "jsonl"', {"primary": b"", "foreign": b""}),
        Shape("csv", _csv("key", "text"), _csv("at", "key", "note", "id"), {"primary": b"", "foreign": b""}),
        Shape(
            "headed", 'format = "csv"', 'format = "csv"', {"primary": b"key,text\n", "foreign": b"at,key,note,id\n"}
        ),
        Shape(
            "regex",
            f"format = \"regex\"\npattern = '{_PATTERNS['primary']}'",
            f"format = \"regex\"\npattern = '{_PATTERNS['foreign']}'",
            {"primary": b"", "foreign": b""},
        ),
    )
}


def written(shape: Shape, side: str, record: Mapping[str, str]) -> bytes:
    """A record as a line, with its end."""
    values = [record[column] for column in _COLUMNS[side]]
    if shape.name == "jsonl":
        pairs = (
            (name, int(value) if name == "at" else value) for name, value in zip(_COLUMNS[side], values, strict=True)
        )
        return json.dumps(dict(pairs)).encode() + b"\n"
    return (" " if shape.name == "regex" else ",").join(values).encode() + b"\n"


def read(shape: Shape, side: str, line: bytes) -> dict[str, Any] | None:
    """The payload of a line; ``None`` means that it is no record."""
    try:
        text = line.decode()
        if shape.name == "jsonl":
            found = json.loads(text)
        elif shape.name == "regex":
            matched = re.match(_PATTERNS[side], text)
            found = None if matched is None else matched.groupdict()
        else:
            values = text.split(",")
            found = dict(zip(_COLUMNS[side], values, strict=True)) if len(values) == len(_COLUMNS[side]) else None
    except ValueError:
        return None
    needed = ("key",) if side == "primary" else ("key", "id", "at")
    if not isinstance(found, dict) or not all(found.get(name) for name in needed):
        return None
    return found if side == "primary" or str(found["at"]).isdigit() else None


class File(NamedTuple):
    """A log file at a run. ``resting``: nobody writes to it any more, so a last line without end is complete."""

    data: bytes
    resting: bool


class Said(NamedTuple):
    """A line of a log: the log's name and first record, the line's place in it, and its bytes."""

    log: str
    first: bytes
    offset: int
    line: bytes


def log_name(path: str) -> str:
    """The name without the suffix added by a rotation."""
    return re.sub(r"(\.\d+)?(\.gz)?$", "", path)


def lines(shape: Shape, side: str, files: Mapping[str, File]) -> tuple[dict[Said, bytes], bool]:
    """The complete lines of all files, and whether some last line still waits for its end."""
    found: dict[Said, bytes] = {}
    torn = False
    for path, file in files.items():
        data, at = file.data, 0
        parts = data.split(b"\n")
        first = b""
        for number, line in enumerate(parts):
            whole = number < len(parts) - 1 or (file.resting and line != b"")
            torn = torn or (not whole and line != b"")
            if whole and not (number == 0 and shape.header[side] != b""):
                first = first or line
                if line:
                    found[Said(log_name(path), first, at, line)] = line
            at += len(line) + 1
    return found, torn


class Broken(AssertionError):
    """The output contains something it must not."""


@dataclass
class Oracle:
    """All that the runs so far have seen, and its consequences."""

    shape: Shape
    seen: set[Said] = field(default_factory=set)  # foreign lines in the logs at any run, even one that was killed
    owed: set[Said] = field(default_factory=set)  # foreign lines at a run that completed
    now: set[Said] = field(default_factory=set)  # foreign lines at the last run
    primaries: set[bytes] = field(default_factory=set)  # all primary lines ever seen
    timed: bool = True  # true if the configuration names an event time
    # The dispatcher lost its state: its ledger begins with the current logs; its own records come again.
    doubled: bool = False
    # Name and first record of logs of which there were several since then: lines that these do not share may count as
    # read again, for they had verdicts.
    alike: set[tuple[str, bytes]] = field(default_factory=set)
    verdicts: dict[str, str] = field(default_factory=dict)  # id -> kind, as last in the output
    keys_here: set[str] = field(default_factory=set)  # keys that a primary log had at the last run
    # Ids that a run without --keep-pending may have called unmatched since the last completed run: the next run
    # carries out registered ids from its redo log, regardless of what it finds or is told to keep.
    logged: set[str] = field(default_factory=set)
    # Unmatched ids among them. A run with --keep-pending counts as pending an id that it looked up before the redo
    # log was carried out: nobody asks for its verdict.
    redone: set[str] = field(default_factory=set)
    torn_primary: bool = False
    torn: bool = False  # a foreign log ends in a line that waits

    def show(self, primary: Mapping[str, File], foreign: Mapping[str, File]) -> None:
        """Takes in the logs before a run."""
        said, torn = lines(self.shape, "primary", primary)
        here = {str(record["key"]) for line in said.values() if (record := read(self.shape, "primary", line))}
        self.primaries |= set(said.values())
        self.keys_here, self.torn_primary = here, torn
        now, self.torn = lines(self.shape, "foreign", foreign)
        each = [lines(self.shape, "foreign", {name: file})[0] for name, file in foreign.items()]
        logs = Counter(log for found in each for log in {(said.log, said.first) for said in found})
        several = {log for log, files in logs.items() if files > 1}
        self.alike = self.alike | several if self.doubled else several
        self.seen |= set(now)
        self.now = set(now)

    def dispatcher_lost(self) -> None:
        """The ledger is lost, and so are waiting events: those that are in no log any more are gone."""
        self.doubled = True
        self.owed.clear()

    def judge(
        self, output: Mapping[str, list[bytes]], *, keep: bool, ledger: Mapping[str, int] | None, back: bool
    ) -> None:
        """``output``: kind -> the lines of its files. ``ledger``: of a completed run; ``None`` means it did not
        complete. ``back``: its clock was behind an earlier run's, so events may wait.

        Raises Broken.
        """
        by_id: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for said in self.seen:
            if record := read(self.shape, "foreign", said.line):
                by_id[str(record["id"])].append(record)
        raw = {said.line for said in self.seen}
        verdicts = self._verdicts(output, by_id, raw)
        for event, kind in self.verdicts.items():
            if verdicts.get(event) != kind:
                raise Broken(f"{event} was {kind}, and is {verdicts.get(event, 'in no output')}")
        for event in verdicts.keys() - self.verdicts.keys() - self.logged:
            if verdicts[event] == "unmatched":
                if keep:
                    raise Broken(f"{event} is unmatched, in a run with --keep-pending")
                if all(str(record["key"]) in self.keys_here for record in by_id[event]):
                    raise Broken(f"{event} is unmatched, though the primary logs have its key")
        for line in output["rejected"]:
            self._rejected(json.loads(line), raw)
        before, self.verdicts = self.verdicts, verdicts
        if ledger is not None:
            self.redone |= {event for event in self.logged if verdicts.get(event) == "unmatched"}
            self.logged.clear()
            self._settled(output, ledger, keep, back)
        elif not keep:
            here = self.keys_here
            self.logged |= {
                event
                for event, records in by_id.items()
                if event not in before and any(str(record["key"]) not in here for record in records)
            }

    def _verdicts(
        self, output: Mapping[str, list[bytes]], by_id: Mapping[str, list[dict[str, Any]]], raw: set[bytes]
    ) -> dict[str, str]:
        verdicts: dict[str, str] = {}
        for kind in TAKEN:
            for line in output[kind]:
                record = json.loads(line)
                event = record["event_id"]
                if event in verdicts:
                    raise Broken(f"{event} has two verdicts: {verdicts[event]} and {kind}")
                verdicts[event] = kind
                if kind == "joined":
                    self._joined(line, record, by_id)
                elif _raw(record) not in raw:
                    raise Broken(f"no log said what is unmatched: {record}")
        for kind in ("filtered", "late"):
            if output[kind]:
                raise Broken(f"nothing here is {kind}: {output[kind][0]!r}")
        return verdicts

    def _joined(self, line: bytes, record: dict[str, Any], by_id: Mapping[str, list[dict[str, Any]]]) -> None:
        event, key = record["event_id"], record["key"]
        if record["foreign"] not in by_id.get(event, ()):
            raise Broken(f"no foreign log said {record['foreign']}")
        time_ns = int(record["foreign"]["at"]) * 1000 if self.timed else 0
        if record["foreign"]["key"] != key or record["event_time_ns"] != time_ns:
            raise Broken(f"key or time are not those of the foreign line: {line!r}")
        if record["primary"].get("key") != key:
            raise Broken(f"joined with the primary of another key: {line!r}")
        if self.shape.name != "jsonl":
            if record["primary"] not in (read(self.shape, "primary", each) for each in self.primaries):
                raise Broken(f"no primary log said {record['primary']}")
            return
        foreign, _, rest = line.partition(b'"foreign":')[2].partition(b',"primary":')
        primary = rest.partition(b',"source":')[0]
        if foreign not in {said.line for said in self.seen} or primary not in self.primaries:
            raise Broken(f"not byte for byte what the logs said: {line!r}")

    def _rejected(self, record: dict[str, Any], raw: set[bytes]) -> None:
        line = _raw(record)
        if line not in raw:
            raise Broken(f"no log said what is rejected: {record}")
        if read(self.shape, "foreign", line) is not None:
            raise Broken(f"rejected though it can be read: {record}")

    def _settled(
        self,
        output: Mapping[str, list[bytes]],
        ledger: Mapping[str, int],
        keep: bool,
        back: bool,
    ) -> None:
        """Every line of this and earlier runs has its verdict, and the ledger has all of them."""
        self.owed |= self.now
        waiting: dict[str, set[str]] = defaultdict(set)
        alone = 0  # lines without a primary now; their ids' verdicts may not have been asked for
        for said in self.seen:  # a killed run may have left an event waiting whose log is gone
            record = read(self.shape, "foreign", said.line)
            if record is not None:
                alone += str(record["key"]) not in self.keys_here
                if str(record["id"]) not in self.verdicts and said in self.owed:
                    waiting[str(record["id"])].add(str(record["key"]))
        ever = {str(record["key"]) for line in self.primaries if (record := read(self.shape, "primary", line))}
        for event, keys in sorted(waiting.items()):
            if keys & self.keys_here and not back:
                raise Broken(f"{event} has no verdict, though the primary logs have its key")
            if not (keep or back or self.torn_primary or keys & ever):
                raise Broken(f"{event} waits, though no primary log ever had its key")
        rejected = {_raw(json.loads(line)) for line in output["rejected"]}
        for said in self.owed:
            if read(self.shape, "foreign", said.line) is None and said.line not in rejected:
                raise Broken(f"no verdict on {said}")
        counts = {kind: len(found) for kind, found in output.items()}
        gone = [record for said in self.seen - self.owed if (record := read(self.shape, "foreign", said.line))]
        uncounted = Counter(self.verdicts.get(event) for event in {str(record["id"]) for record in gone})
        for kind in () if self.doubled else (*TAKEN, "rejected"):
            fewer = uncounted[kind] + (len(self.redone) if kind == "unmatched" else 0)
            if not counts[kind] - fewer <= ledger[kind] <= counts[kind]:
                raise Broken(f"the ledger says {ledger[kind]} {kind}, the output {counts[kind]}")
        if ledger["read"] != sum(ledger[name] for name in SUMMED):
            raise Broken(f"the ledger does not balance: {dict(ledger)}")
        most = alone if not back else ledger["pending"]
        if not len(waiting) <= ledger["pending"] <= most:
            raise Broken(
                f"{len(waiting)} ids have no verdict, the ledger says {ledger['pending']}: {sorted(waiting)}"
            )
        unsure = [said for said in self.owed if self.doubled and (said.log, said.first) in self.alike]
        least, most = len(self.owed) - len(unsure), len(self.seen)
        if not least <= ledger["read"] <= most:
            raise Broken(f"the logs had {least} to {most} lines, the ledger says {ledger['read']}")


def _raw(record: Mapping[str, Any]) -> bytes:
    """The line in a record of rejected/ or unmatched/."""
    encoded = record.get("record_raw_base64")
    return base64.b64decode(encoded) if encoded is not None else str(record["record"]).encode()


def published(durable: Iterable[bytes], manifests: Iterable[bytes]) -> Counter[str]:
    """Output file (without ``.gz``) -> length that readers were shown."""
    shown: Counter[str] = Counter()
    for each in durable:
        shown.update(json.loads(each)["files"])
    for each in manifests:
        for line in each.splitlines():
            final = json.loads(line)
            shown[final["file"].removesuffix(".gz")] = final["uncompressed_bytes"]
    return shown
