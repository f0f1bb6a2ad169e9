"""The adapter contract: the methods through which Photon reads a pair of logs.

An adapter is *pure*: the same bytes give the same answer in every datacentre, today and next year. The id, key and
event time that it derives from a foreign record decide who is billed, so it must not look at clocks, files other than
the record's own header, or random numbers.

Most logs need no code: ``photon.adapters.configured.ConfiguredAdapter`` is built from the configuration.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import msgspec

from photon.batch.files import LogFile as LogFile
from photon.config.errors import PhotonError, UsageError

if TYPE_CHECKING:
    from photon.adapters.crumbs import Crumbs

API_VERSION = 1
"""Increased when the contract changes incompatibly; an adapter names the version it was written for."""
API_SPOKEN = (API_VERSION,)
"""Versions that adapters may be written for; docs/adapters.md says how long an old one is supported."""
TIME_LIMIT_S = 5.0
MEMORY_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Framing:
    """The way the files of one side are cut into records."""

    kind: str = "lines"
    """``lines``: one record a line. ``quoted``: line ends inside quoted fields belong to the record (CSV). ``zeek``:
    lines; those that begin with ``#`` are headers for the lines that follow. ``varint``: binary messages, each
    preceded by its length, returned as lines of base64. ``cri``: container logs of Kubernetes, whose parts are merged
    and returned as lines ``<time> <stream> <content>``.
    """
    quote: bytes = b'"'
    delimiter: bytes = b","
    first_line: bool = False
    """With ``lines``: ``LogFile.header`` holds the start of the file's first line, which is a record too."""
    escape: bytes = b""  # ``quoted``: makes a quote after it a character
    before: Framing | None = None  # makes lines of the file's bytes; ``kind`` then cuts those

    def __post_init__(self) -> None:
        if type(self).cut is not Framing.cut:
            object.__setattr__(self, "kind", OWN)
        elif self.kind not in KINDS:
            todo = f"write one of {', '.join(KINDS)}, or a subclass of Framing that defines cut"
            raise AdapterError(f"{self.kind!r} is not a framing", "framing", todo)

    def cut(self, data: bytes, state: bytes) -> Cut:
        r"""Cuts a file's next bytes into lines. Define it in a subclass to read files that no ``kind`` describes.

        Each record becomes one line, ended by ``\n`` once the record is known to be complete; use ``binary_line`` to
        turn arbitrary bytes into a line. The line may be returned in parts. ``state`` is ``b""`` at the start of the
        file, then the state returned by the previous call. The text must depend on nothing but the file's bytes,
        however they are divided among calls. An exception ends the log: nothing after the byte that raises it is
        read.
        """
        raise NotImplementedError

    @property
    def splittable(self) -> bool:
        """True if reading can resume at any line end without the bytes before it, except a header record."""
        return self.kind == "lines" and self.before is None

    @property
    def forward(self) -> bool:
        """True if lines are made from the files' bytes; offsets then count the lines' bytes."""
        return self.before is not None or self.kind in ("varint", "cri", OWN)

    def ended(self, data: bytes, state: bytes) -> bytes:
        """Returns a file's unfinished last record, completed; empty bytes if they do not form a record."""
        return b""

    @property
    def gathers(self) -> bool:
        """True if a record is complete only when the next line starts, or nothing changed for ``last_line_after``."""
        return False


KINDS = ("lines", "quoted", "zeek", "varint", "cri")
OWN = "own"  # the kind of a subclass that defines ``cut``
LINES = Framing()


class Cut(NamedTuple):
    """The result of ``Framing.cut``."""

    text: bytes
    used: int
    """Number of bytes of the data that the text was made from. The rest is passed again, in front of the bytes that
    follow; at the end of a file, the rest is an incomplete record.
    """
    state: bytes = b""
    """Passed to the next call, for example a header that was read; at most 64 KiB. With this state, reading can
    continue after ``used`` in this process or another.
    """


def binary_line(record: bytes) -> bytes:
    """Returns one line of base64 for any bytes; ``base64.b64decode`` in the adapter restores them."""
    return b2a_base64(record)


@dataclass(frozen=True, slots=True)
class Matching:
    """Selects the primary events that a foreign event is joined with, among those that have its key."""

    match: str = "first"
    """``first``, ``all``, or ``latest``: the one with the latest event time not after the foreign event's."""
    before_ns: int | None = None
    """Maximum time in ns by which a primary event may precede the foreign event; ``None`` means no bounds."""
    after_ns: int | None = None

    @property
    def whole_sets(self) -> bool:
        """True if the outcome depends on all primary events of the key; events then wait until no more can follow."""
        return self.match != "first"

    @property
    def needs_time(self) -> bool:
        """True if primary events need an event time."""
        return self.match == "latest" or self.before_ns is not None


FIRST = Matching()


class ForeignHeader(NamedTuple):
    """The fields of a foreign record that the dispatcher needs."""

    key: bytes
    """Names the primary event."""
    event_time_ns: int
    """int64 nanoseconds UTC."""
    event_id: bytes | None = None
    """Globally unique.

    ``None`` if records have no id: one is then made from place and content (``logs.place_ids``).
    """


@dataclass(slots=True)
class BadRecord(Exception):
    """This record cannot be read; ``reason`` is one short line for the rejected log."""

    reason: str


class Retry(PhotonError):
    """The machine cannot answer now, for example because a service it queries is down.

    The call is repeated, with back-off, until there is an answer; ``str()`` is one short line. Any other exception
    rejects the record.
    """


class Skipped(BadRecord):
    """This line is not an event, for example a comment. Raised by ``foreign_header`` and ``primary_key``.

    It is neither rejected nor counted, so never skip billable events; filter them (``Filtered``).
    """


class Headers(NamedTuple):
    """``ForeignHeader`` as columns."""

    keys: Sequence[bytes]
    times: Sequence[int]  # event times, ns UTC
    ids: Sequence[bytes | None]
    others: Mapping[int, BadRecord]
    """Row -> why this record has no header; ignore the columns' values there."""

    @staticmethod
    def of(made: Sequence[ForeignHeader | BadRecord]) -> Headers:
        """Converts one answer per record to columns."""
        others = {row: each for row, each in enumerate(made) if not isinstance(each, ForeignHeader)}
        headers = [each if isinstance(each, ForeignHeader) else ForeignHeader(b"", 0) for each in made]
        return Headers.columns(headers, others)

    @staticmethod
    def columns(rows: Sequence[tuple[bytes, int, bytes | None]], others: Mapping[int, BadRecord]) -> Headers:
        """Converts each record's (key, event time, id) to columns; the values of rows in ``others`` do not matter."""
        keys, times, ids = tuple(zip(*rows, strict=True)) or ((), (), ())
        return Headers(keys, times, ids, others)

    def rows(self) -> list[ForeignHeader | BadRecord]:
        """Returns each record's header, or why it has none."""
        headers = zip(self.keys, self.times, self.ids, strict=True)
        return [self.others.get(row) or ForeignHeader(*each) for row, each in enumerate(headers)]


class Joined(NamedTuple):
    """The two payloads of a joined record, each a JSON value as bytes (one line, no newline inside).

    ``None`` means that the raw record is not valid UTF-8 text of this format and is written as base64.
    """

    foreign: bytes | None
    primary: bytes | None


class Pair(NamedTuple):
    """The arguments of ``join``: a foreign record and the primary record it names, each with its file."""

    foreign: bytes
    foreign_file: LogFile
    primary: bytes
    primary_file: LogFile


@dataclass(frozen=True, slots=True)
class Filtered:
    """Business rules exclude this pair from ``joined``. It is registered, and leaves one line with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unpaired:
    """The two have the same key but are not a pair: the foreign event is permanently unmatched."""

    reason: str


class Pairs(NamedTuple):
    """Columns of ``Pair``: the arguments of ``join``, row by row."""

    foreign: Sequence[bytes]
    foreign_files: Sequence[LogFile]
    primary: Sequence[bytes]
    primary_files: Sequence[LogFile]


class Payloads(NamedTuple):
    """The outcomes of pairs as columns: both payloads of each joined pair, as in ``Joined``."""

    foreign: Sequence[bytes | None]
    primary: Sequence[bytes | None]
    others: Mapping[int, Filtered | Unpaired | BadRecord]
    """Row -> the outcome of a pair that is not joined; ignore the columns' values there."""

    @staticmethod
    def of(made: Sequence[Joined | Filtered | Unpaired | BadRecord]) -> Payloads:
        """Converts one outcome per pair to columns."""
        if set(map(type, made)) == {Joined}:
            foreign, primary = zip(*cast("Sequence[Joined]", made), strict=True)
            return Payloads(list(foreign), list(primary), {})
        others = {row: each for row, each in enumerate(made) if not isinstance(each, Joined)}
        joined = [each if isinstance(each, Joined) else Joined(None, None) for each in made]
        return Payloads([each.foreign for each in joined], [each.primary for each in joined], others)

    def rows(self) -> list[Joined | Filtered | Unpaired | BadRecord]:
        """Returns the outcome of each pair."""
        joined = zip(self.foreign, self.primary, strict=True)
        return [self.others.get(row) or Joined(*each) for row, each in enumerate(joined)]


class Adapter(ABC):
    """Reads both sides, and makes joined records. Subclass it, then configure it as ``path.py:Class``."""

    api_version: int = 1
    """The contract version it is written for; default: the first."""
    time_limit_s: float = TIME_LIMIT_S
    """Seconds within which each call has to return; Photon sets it from ``limits.adapter_timeout``. 0 means no limit.
    """
    memory_limit: int = MEMORY_LIMIT
    """Bytes by which the process may grow in a call; Photon sets it from ``limits.adapter_memory``. 0 means no limit.
    """
    crumbs: Crumbs | None = None  # set by Photon so that a record that kills the process is lost alone
    late_in_a_row: int = 0  # records that timed out, counted by Photon
    primary_has_header: bool = False
    """The first record of each primary file is a header (as in CSV), not an event."""
    foreign_has_header: bool = False
    primary_duplicates: str = "first"
    """Treatment of a foreign event if several different primary records have its key: join it to the ``first`` or the
    ``last`` in file order, or ``reject`` it. Not part of ``rule``: it may be changed.
    """
    matching: Matching = FIRST
    """Set from the join's ``match`` and ``within``. Not part of ``rule``."""
    unmatched_inline: bool = False
    """Unmatched events are written among the joined ones, with their ``unmatched_payload``. Set from the join's
    ``unmatched``. Not part of ``rule``.
    """
    primary_framing: Framing = LINES
    foreign_framing: Framing = LINES
    primary_links: Sequence[str] = ()
    """Directories that links in the log directory may point into (``follow_links``). Not part of ``rule``."""
    foreign_links: Sequence[str] = ()

    shape: Mapping[str, Any] | None = None
    """The shape applied by ``photon.adapters.shaping``, to rebuild it elsewhere; ``None`` means none."""
    within: Mapping[str, int] | None = None
    """The bounds applied by ``photon.adapters.bounds``, to rebuild them elsewhere. ``None`` means no bounds."""

    Options: ClassVar[type[msgspec.Struct] | None] = None
    """Names and types of its options. ``options`` then holds all of them, including defaults; other names, and values
    of another type, are refused. ``None`` means that any options are accepted.
    """
    base_options: ClassVar[frozenset[str]] = frozenset()  # options that a base class checks itself

    data_files: Sequence[str] = ()
    """Names of files next to the adapter's own that it reads, such as a price table: Spark's executors get them too.
    Only for ``path.py:Class``; a package contains its own data.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises AdapterError for options that ``Options`` does not allow."""
        self.options = dict(options)
        if self.Options is not None:
            base = {name: value for name, value in options.items() if name in self.base_options}
            own = {name: value for name, value in options.items() if name not in base}
            self.options = {**base, **_checked_options(own, self.Options, f"options of {type(self).__name__}")}

    # -- one record -----------------------------------------------------------------------------------------
    @abstractmethod
    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        """Returns the key, event time and id of a foreign record (without its line end). Raises BadRecord."""

    @abstractmethod
    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        """Returns the key by which foreign events refer to this primary record. Raises BadRecord."""

    @abstractmethod
    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        """Returns the record as JSON on one line; ``None`` if it is not UTF-8 (it is then written as base64)."""

    @abstractmethod
    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        """Like foreign_payload, for the primary side."""

    def primary_time(self, record: bytes, file: LogFile) -> int:
        """Returns a primary record's event time, int64 ns UTC, for ``within`` and ``latest``. Raises BadRecord."""
        raise BadRecord("the adapter reads no time of primary events")

    has_time_of_primary = False  # True if joined records have the primary event's time, as foreign events have none
    several_keys = False  # True if a foreign record's key is a list (``key_lists.list_of_keys``); for match = "all"
    has_foreign_time = True  # False if the records have no event time; all foreign events then have the same one

    @property
    def has_primary_time(self) -> bool:
        """True if ``primary_time`` is implemented."""
        return type(self).primary_time is not Adapter.primary_time

    def join(
        self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile
    ) -> Joined | Filtered | Unpaired:
        """Returns the outcome of joining a foreign record with the primary record it refers to."""
        return Joined(self.foreign_payload(foreign, foreign_file), self.primary_payload(primary, primary_file))

    def unmatched_payload(self, record: bytes, file: LogFile) -> bytes | None:
        """Returns an unmatched event's foreign payload in ``joined`` (``unmatched = "inline"``), as ``join`` would.

        An adapter that defines ``join`` should define this too. Raises BadRecord.
        """
        return self.foreign_payload(record, file)

    def shown_record(self, record: bytes, file: LogFile) -> bytes | None:
        """Returns the text of a foreign record for ``unmatched``, ``filtered``, ``rejected`` and ``late``.

        The record is unchanged unless some of its fields are redacted. ``None`` means that it is not written. Raises
        BadRecord for a record that cannot be parsed: then it is not written.
        """
        return record

    @property
    def hides(self) -> bool:
        """True if ``shown_record`` may differ from the record."""
        return "shown_record" in vars(self) or type(self).shown_record is not Adapter.shown_record

    # -- many at once: override for speed; the methods above define the meaning -------------------------------------
    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        """Returns the foreign_header of each record of one file, as columns."""
        out: list[ForeignHeader | BadRecord] = []
        for record in records:
            try:
                out.append(self.foreign_header(record, file))
            except BadRecord as bad:
                out.append(bad)
        return Headers.of(out)

    def primary_keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        r"""Returns the keys of all records in ``block``, in order; ``None`` for a bad one, ``b""`` for a skipped one.

        ``block`` is whole records, each ended by ``\n`` (a ``\r`` before it belongs to the line end). The result has
        exactly ``block.count(b"\n")`` items.
        """
        return Adapter.primary_keys_of(self, [line.removesuffix(b"\r") for line in block.split(b"\n")[:-1]], file)

    def primary_keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        """Returns the primary_key of each record of one file, ``None`` for a bad one, ``b""`` for a skipped one.

        Used by joiners and event stores if a class defines it, like ``join_columns``.
        """
        keys: list[bytes | None] = []
        for record in records:
            try:
                keys.append(self.primary_key(record, file))
            except Skipped:
                keys.append(b"")
            except BadRecord:
                keys.append(None)
        return keys

    def primary_times(self, records: Sequence[bytes], file: LogFile) -> list[int | BadRecord]:
        """Returns the primary_time of each record of one file; a BadRecord for a bad one."""
        times: list[int | BadRecord] = []
        for record in records:
            try:
                times.append(self.primary_time(record, file))
            except BadRecord as bad:
                times.append(bad)
        return times

    def join_columns(self, pairs: Pairs) -> Payloads:
        """Returns the outcome of ``join`` for each pair, as columns.

        Used by joiners if a class defines it. If it raises or does not return, each pair is joined separately.
        """
        out: list[Joined | Filtered | Unpaired | BadRecord] = []
        for pair in zip(*pairs, strict=True):
            try:
                out.append(self.join(*pair))
            except BadRecord as bad:
                out.append(bad)
        return Payloads.of(out)

    def defines(self, many: str) -> bool:
        """True if the adapter's class defines ``many``, the name of a method for many records."""
        return many in vars(self) or getattr(type(self), many) is not getattr(Adapter, many)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # An inherited method for many records ignores an override of the method for one record in this class.
        own = vars(cls).keys()
        for many, alone in _MEANINGS.items():
            if many not in own and own & alone:
                setattr(cls, many, getattr(Adapter, many))

    def rule(self) -> bytes:
        """Returns the configuration of id, key and time as canonical bytes, which all datacentres must share. Code is
        not covered; its answers are compared with earlier ones instead.
        """
        return b"code"


def check_names(table: Mapping[str, Any], known: Sequence[str], where: str, kind: str) -> None:
    """Refuses unknown names and suggests the nearest known one. Raises AdapterError."""
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            todo = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise AdapterError(f"{name} = {table[name]!r} is not {kind}", where, todo)


def _checked_options(given: Mapping[str, Any], kind: type[msgspec.Struct], where: str) -> dict[str, Any]:
    check_names(given, kind.__struct_fields__, where, "an option")
    try:
        options: dict[str, Any] = msgspec.to_builtins(msgspec.convert(dict(given), kind))
    except msgspec.ValidationError as error:
        raise AdapterError(str(error), where, "correct the value") from None
    return options


_MEANINGS = {
    "header_columns": {"foreign_header"},
    "primary_keys": {"primary_key"},
    "primary_keys_of": {"primary_key"},
    "primary_times": {"primary_time"},
    "join_columns": {"join", "foreign_payload", "primary_payload"},
}
"""Method for many records -> the methods for one record that define its meaning."""


@dataclass
class AdapterError(UsageError):
    """An adapter could not be loaded, or violates the contract.

    ``str()`` is one line: what failed, where, what to do.
    """

    what: str
    where: str
    todo: str
    details: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.todo}"
