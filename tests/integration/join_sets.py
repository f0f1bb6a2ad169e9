"""Generated log directories, and a plain reference of the output `photon join` must produce.

The reference reads the real files: one file, one line, one dictionary at a time, with the standard library only.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from xxhash import xxh3_128_hexdigest

RECORD_MAX = 300  # ``limits.record`` of these sets
BOM = b"\xef\xbb\xbf"
# File name -> the name of its log, which no rotation changes.
LOG_NAMES = {
    "a.log": "a.log",
    "a.log.1": "a.log",
    "a.log.2.gz": "a.log",
    "b.jsonl": "b.jsonl",
    "b.jsonl.gz": "b.jsonl",
    "sub/c.log-20261120": "sub/c.log",
    "sub/c.log-20261121.gz": "sub/c.log",
    "sub/deep/d": "sub/deep/d",
    "a.log.1.gz": "a.log",  # made by a roll only
}
KEYS = ("k0", "k1", "k2", "17", "k four", "schlüssel", 'quo"te')
_BAD_PRIMARY = (b"{", b"[1]", b'{"key":""}', b'{"other":"k1"}', b"\x00\x00", b'{"key":null}')
_BAD_FOREIGN = (
    b"no json \xff",
    b'{"id":"half',
    b"[]",
    b'{"id":"x","ts":1700000000000}',
    b'{"id":"x","key":"k1"}',
    b'{"id":{},"key":"k1","ts":"soon"}',
    b'{"id":"x","key":[],"ts":1700000000000}',
)


# -- what is generated -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LineSpec:
    """``kind``: good, bad, long, full, blank, again (a good line once more), clash (its id with other contents)."""

    kind: str
    style: int
    key: int


@dataclass(frozen=True)
class FileSpec:
    """``hollow``: nothing but blank lines or nothing at all. ``more``: lines of the second stage, for plain files."""

    name: str
    lines: tuple[LineSpec, ...]
    more: tuple[LineSpec, ...]
    crlf: bool
    bom: bool
    ends: bool
    hollow: bool
    members: int  # gz: number of gzip members


@dataclass(frozen=True)
class SetSpec:
    """Two directories in two stages. ``roll``: a.log is rolled between them, and compressed when it is 2."""

    primary: tuple[FileSpec, ...]
    foreign: tuple[FileSpec, ...]
    roll: int
    with_id: bool
    cache: int
    batch_events: int
    shards: int


_kinds = st.sampled_from(["good"] * 8 + ["again"] * 3 + ["clash", "bad", "bad", "long", "full", "blank"])
_lines = st.builds(LineSpec, _kinds, st.integers(0, 7), st.integers(0, len(KEYS)))
_files = st.lists(
    st.builds(
        FileSpec,
        name=st.sampled_from([name for name in LOG_NAMES if name != "a.log.1.gz"]),
        lines=st.lists(_lines, min_size=3, max_size=14).map(tuple),
        more=st.lists(_lines, max_size=4).map(tuple),
        crlf=st.booleans(),
        bom=st.booleans(),
        ends=st.booleans(),
        hollow=st.sampled_from([False] * 9 + [True]),
        members=st.integers(1, 3),
    ),
    min_size=2,
    max_size=5,
    unique_by=lambda spec: spec.name,
).map(tuple)
sets = st.builds(
    SetSpec,
    primary=_files.map(lambda files: (replace(files[0], hollow=False), *files[1:])),  # none at all is an error
    foreign=_files,
    roll=st.integers(0, 2),
    with_id=st.sampled_from([True, True, False]),
    cache=st.sampled_from([1, 1 << 20]),
    batch_events=st.sampled_from([2, 1000]),
    shards=st.sampled_from([1, 3]),
)


# -- writing it ------------------------------------------------------------------------------------------------------
class Writer:
    """Writes one side. The first line of anything it begins is unlike every other: it tells the logs apart."""

    def __init__(self, directory: Path, *, foreign: bool) -> None:
        self.directory = directory
        self._foreign = foreign
        self._count = 0
        self._written: list[tuple[int, bytes]] = []  # number in its id, line
        directory.mkdir()

    def first(self, files: Iterable[FileSpec]) -> None:
        for spec in files:
            path = self.directory / spec.name
            path.parent.mkdir(parents=True, exist_ok=True)
            hollow = (b"", b"\n", b"\r\n\n")[len(spec.lines) % 3]
            data = BOM * spec.bom + (hollow if spec.hollow else self._body(spec, spec.lines))
            if path.suffix == ".gz":
                cut = -(-len(data) // spec.members) or 1
                data = b"".join(gzip.compress(data[at : at + cut]) for at in range(0, len(data), cut))
            path.write_bytes(data)

    def second(self, files: Iterable[FileSpec], roll: int) -> None:
        for spec in files:
            if spec.more and not spec.name.endswith(".gz"):
                path = self.directory / spec.name
                before = path.read_bytes().removeprefix(BOM)
                glue = self._end(spec) if before and not before.endswith(b"\n") else b""
                with path.open("ab") as file:
                    file.write(glue + self._body(spec, spec.more))
        plain, rolled = self.directory / "a.log", self.directory / "a.log.1"
        compressed = self.directory / "a.log.1.gz"
        if not roll or not plain.exists() or rolled.exists():
            return
        plain.rename(rolled)
        if roll == 2:
            compressed.write_bytes(gzip.compress(rolled.read_bytes()))
            rolled.unlink()
        plain.write_bytes(self._unlike() + b"\n" + self._line(LineSpec("good", 0, 1)) + b"\n")

    def _body(self, spec: FileSpec, lines: Iterable[LineSpec]) -> bytes:
        end = self._end(spec)
        body = end.join([self._unlike(), *(self._line(each, len(end) - 1) for each in lines)])
        return body + end * spec.ends

    def _end(self, spec: FileSpec) -> bytes:
        return b"\r\n" if spec.crlf else b"\n"

    def _unlike(self) -> bytes:
        return self._line(LineSpec("good", 0, len(KEYS)))

    def _line(self, spec: LineSpec, end: int = 0) -> bytes:
        """A line without its end; ``end``: bytes of the end that count as the record's."""
        if spec.kind == "blank":
            return b""
        if spec.kind == "bad":
            bad = _BAD_FOREIGN if self._foreign else _BAD_PRIMARY
            return bad[(spec.style + spec.key) % len(bad)]
        if spec.kind == "again":
            return self._written[(spec.style * 7 + spec.key) % len(self._written)][1]
        number = self._count = self._count + 1
        if spec.kind == "clash":
            number = self._written[(spec.style * 7 + spec.key) % len(self._written)][0]
        size = {"long": RECORD_MAX + 1 + spec.style * 200, "full": RECORD_MAX - end}.get(spec.kind, 0)
        line = self._good(number, spec, size)
        if spec.kind != "long":
            self._written.append((number, line))
        return line

    def _good(self, number: int, spec: LineSpec, size: int) -> bytes:
        key: str | int = KEYS[spec.key] if spec.key < len(KEYS) else f"nobody-{self._count}"
        if key == "17" and spec.style % 2:
            key = 17  # a number names the same as its digits
        ts = 1_700_000_000_000 + self._count
        fields: dict[str, Any] = {"n": self._count, "key": key, "ts": ts + 0.25 if spec.style == 5 else ts}
        if self._foreign:
            fields["id"] = f"c{number}"
        text = {1: "caf\u00e9 \u2028", 4: '\\ "quoted" \t', 6: "nul \u0000"}.get(spec.style, "x")
        fields["text"] = text
        compact = (",", ":") if spec.style % 2 else (" ,\t", " : ")
        line = json.dumps(fields, ensure_ascii=spec.style != 1, separators=compact).encode()
        if spec.style == 2:
            line = line.replace(b'"x"', b'"\xff\xfe"')  # readable, but no UTF-8
        if spec.style == 3:
            line = b"  \t" + line + b" "
        if size:
            line = line.replace(b"{", b'{"fill":"' + b"y" * (size - len(line) - 10) + b'",', 1)
            assert len(line) == size
        return line


# -- the reference ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Record:
    """A line of a log. ``fields`` is ``None`` for an unreadable one."""

    log: str
    identity: str
    file: str
    offset: int
    raw: bytes
    fields: dict[str, Any] | None
    oversized: bool
    before: bytes

    @property
    def source(self) -> tuple[str, int]:
        return self.file, self.offset

    @property
    def place(self) -> tuple[str, int]:
        """Does not change when the file is renamed."""
        return self.identity, self.offset

    def name(self, field_name: str) -> bytes | None:
        value = (self.fields or {}).get(field_name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value).encode()
        return value.encode("utf-8", "surrogateescape") or None if isinstance(value, str) else None

    @property
    def time_ns(self) -> int | None:
        value = (self.fields or {}).get("ts")
        return int(value * 1_000_000) if isinstance(value, int | Decimal) else None

    def payload(self, side: str) -> bytes:
        """The member of the output line."""
        try:
            self.raw.decode()
        except UnicodeDecodeError:
            return b'"%s_raw_base64":"%s"' % (side.encode(), base64.b64encode(self.raw))
        return b'"%s":%s' % (side.encode(), self.raw.strip(b" \t\r\n"))


def read_records(directory: Path) -> list[Record]:
    """All records below a directory."""
    found: list[Record] = []
    for path in sorted(each for each in directory.rglob("*") if each.is_file()):
        file = str(path.relative_to(directory))
        data = gzip.decompress(path.read_bytes()) if file.endswith(".gz") else path.read_bytes()
        at = len(BOM) if data.startswith(BOM) else 0
        identity = ""
        for line in data[at:].split(b"\n"):
            raw = line.removesuffix(b"\r")
            if raw:
                of_name = blake2b(LOG_NAMES[file].encode() + b"\0" + raw, digest_size=8).hexdigest()
                identity = identity or blake2b(raw, digest_size=8).hexdigest() + of_name
                oversized = len(line) > RECORD_MAX
                before = data[max(at - 4096, 0) : at]
                found.append(Record(LOG_NAMES[file], identity, file, at, raw, _fields(raw), oversized, before))
            at += len(line) + 1
    return found


def _fields(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw.decode("utf-8", "surrogateescape"), parse_float=Decimal)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True)
class Event:
    """A readable foreign record, and the primary record it names, if there is one."""

    record: Record
    event_id: bytes
    key: bytes
    time_ns: int
    primary: Record | None


@dataclass
class Expected:
    """``events``: by event id, all records that carry it; exactly one of them gets its own verdict."""

    read: int = 0
    events: dict[bytes, list[Event]] = field(default_factory=lambda: defaultdict(list))
    rejected: set[tuple[str, int]] = field(default_factory=set)  # places

    @property
    def ambiguous(self) -> bool:
        """The same line at the same place in two rolls of a log: the ledger cannot tell a second reading from it."""
        return any(
            len({(e.record.log, e.record.offset, e.record.raw) for e in each}) < len(each)
            for each in self.events.values()
        )


def reference(primary: Path, foreign: Path, *, with_id: bool) -> Expected:
    """Expected output for the current directories."""
    first: dict[bytes, Record] = {}
    for record in sorted(read_records(primary), key=lambda r: (r.log, r.identity, r.offset)):
        key = record.name("key")
        if key is not None and not record.oversized:
            first.setdefault(key, record)
    expected = Expected()
    for record in read_records(foreign):
        expected.read += 1
        key, time_ns = record.name("key"), record.time_ns
        # As line ends in quotes, marked or not, and what stands for a byte that would be a mark.
        text = (record.before + record.raw).replace(b"\xfe", b"\n").replace(b"\xff", b"\n")
        digest = xxh3_128_hexdigest(text)
        event_id = record.name("id") if with_id else f"{digest}:{record.offset}".encode()
        if record.oversized or key is None or time_ns is None or event_id is None:
            expected.rejected.add(record.place)
        else:
            expected.events[event_id].append(Event(record, event_id, key, time_ns, first.get(key)))
    return expected
