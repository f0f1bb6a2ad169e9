"""Output records as typed Arrow columns: payloads are structs, or flattened, instead of JSON text.

Columns, in this order; times are UTC:

======================================  ==================================================================
kind, event_id, key                     text
event_time                              timestamp, microseconds; ``event_time_ns`` int64, as in the record
foreign, primary                        structs, inferred or given; flattened ``foreign_amount``, ``primary_user_id``
other members of a record               inferred
reason, record, token                   text
source, primary_source                  struct {file text, offset int64}; flattened ``source_file``
joined_at, decided_at                   timestamp, microseconds
_rest                                   JSON text: the members that do not fit their columns, or have none
======================================  ==================================================================

``_rest`` merged into the columns gives the original record (see ``json_types``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.json_types import (
    NOTHING,
    ColumnType,
    Fields,
    changed,
    decimal_digits,
    extended,
    given_fields,
    json_text,
    leaves,
    looks_like_comma,
    settled,
    shown,
    struct_fitter,
    type_of,
    type_of_sample,
    widened,
)

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_BYTES = 4 << 20  # bytes of lines from which types are inferred
REST = "_rest"
SHOWN_CHARS = 60
SEPARATOR = "_"
_PLACE: ColumnType = {"file": "text", "offset": "int"}
_HEAD: Fields = {"event_id": "text", "key": "text", "event_time_ns": "int"}
_TAIL: Fields = {
    "reason": "text",
    "record": "text",
    "source": _PLACE,
    "primary_source": _PLACE,
    "joined_at": "time",
    "decided_at": "time",
    "token": "text",
}
_FIXED: Fields = {**_HEAD, **_TAIL}
_LINE = msgspec.json.Decoder(dict[str, Any])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
UNREADABLE = (*DECODE_ERRORS, RecursionError)


class LineTypes:
    """The types of an output's columns; makes record batches with them. Not thread-safe."""

    def __init__(self, payloads: Fields | None = None, *, given: bool = False, flat: bool = False) -> None:
        """``payloads``: types of ``foreign``, ``primary`` and the other members of a line; ``None`` means that
        ``learn`` infers them. ``given``: True if the user gave them; then text is parsed as the type, and no column
        is added."""
        self.given, self.flat = given, flat
        self.payloads: Fields = {}
        self._seen: ColumnType = {}  # types of values that did not fit since the last ``grow``
        self._unfit: dict[str, str] = {}  # dotted path of a given type -> problem of its first misfit
        self._unfit_told = 0
        self.unfit_counts: Counter[str] = Counter()  # dotted path of a given type -> values that did not fit it
        self.rest = 0  # records so far with something in ``_rest``
        self.known = given or payloads is not None  # False before ``learn``
        self.kept = self.known  # for a caller that stores the types: True if it has the current ones
        self._set(payloads or {})

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any] | None, *, flat: bool = False) -> LineTypes:
        """``schema`` as written by a user: ``{"foreign.amount": "float"}``, or nested. ``None`` means to infer it.
        Raises UsageError."""
        return cls(flat=flat) if schema is None else cls(given_fields(schema), given=True, flat=flat)

    def _set(self, payloads: Fields) -> None:
        self.payloads = self._without_clashes(payloads) if self.flat else payloads
        fixed = {name: (kind, True) for name, kind in _FIXED.items()}
        self._fit = struct_fitter({name: (kind, self.given) for name, kind in self.payloads.items()} | fixed)
        middle = {name: kind for name, kind in self.payloads.items() if name not in _FIXED}
        self._columns: Fields = {**_HEAD, **middle, **_TAIL}
        self._schema: pa.Schema | None = None

    def _without_clashes(self, payloads: Fields) -> Fields:
        """Drops fields whose flat name equals that of another column. Existing fields stay."""
        taken = {SEPARATOR.join(path) for path, _ in leaves(_FIXED)} | {"kind", "event_time", REST}
        order = [path for path, _ in leaves(self.payloads)]
        every = dict(leaves(payloads))
        kept: set[tuple[str, ...]] = set()
        for path in [*order, *(each for each in every if each not in order)]:
            if path in every and (name := SEPARATOR.join(path).casefold()) not in taken:
                taken.add(name)
                kept.add(path)
        return _only(payloads, kept)

    # -- types -------------------------------------------------------------------------------------------------
    def learn(self, lines: Iterable[bytes]) -> None:
        """Infers types from a sample. Raises LineUnreadable."""
        members = [_parsed(line)[0] for line in lines]
        new = settled(type_of_sample([{name: each[name] for name in each if name not in _FIXED} for each in members]))
        self._set(new if isinstance(new, dict) else {})
        self.known = True

    def grow(self) -> list[tuple[str, ColumnType]]:
        """Adds columns for values without one. Returns their (dotted path, type). Existing types stay."""
        seen, self._seen = settled(self._seen), {}
        if self.given or not isinstance(seen, dict):
            return []
        before = dict(leaves(self.payloads))
        after = extended(self.payloads, seen)
        assert isinstance(after, dict)
        if after != self.payloads:
            self._set(after)
        return [(".".join(path), kind) for path, kind in leaves(self.payloads) if before.get(path) != kind]

    def misfits(self) -> list[tuple[str, ColumnType, ColumnType]]:
        """Returns (dotted path, column's type, type seen) of columns whose values did not all fit since ``grow``."""
        return list(changed(self.payloads, self._seen)) if isinstance(self._seen, dict) else []

    def unfit(self) -> list[str]:
        """Returns new messages since the last call: one for each type in the schema that some value did not fit."""
        new = list(self._unfit.items())[self._unfit_told :]
        self._unfit_told = len(self._unfit)
        counts = [f" ({count:,} values so far)" if (count := self.unfit_counts[path]) > 1 else "" for path, _ in new]
        return [
            f"{what}{count}: such values are null, and kept in {REST}; correct the schema if they are right"
            for (_, what), count in zip(new, counts, strict=True)
        ]

    def _note_unfit(self, kinds: Mapping[str, ColumnType], rest: Mapping[str, Any], prefix: str) -> None:
        for name, value in rest.items():
            kind, path = kinds.get(name), prefix + name
            if isinstance(kind, dict) and isinstance(value, dict):
                self._note_unfit(kind, value, f"{path}.")
            elif kind is not None:
                self.unfit_counts[path] += 1
                if path not in self._unfit:
                    comma = looks_like_comma(value) and shown(kind).startswith(("int", "float", "decimal"))
                    hint = " (its comma: float(comma), decimal(P,S,comma))" if comma else ""
                    self._unfit[path] = (
                        f"{path} is {shown(kind)} in the schema, but {_short(value)} does not fit{hint}"
                    )

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._made("", {name: [] for name in self._columns}, []).schema
        return self._schema

    # -- columns -----------------------------------------------------------------------------------------------
    def batch(self, kind: str, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Makes a row for each line. Raises LineUnreadable."""
        columns: dict[str, list[Any]] = {name: [None] * len(lines) for name in self._columns}
        rests: list[str | None] = [None] * len(lines)
        for row, line in enumerate(lines):
            parsed, raw = _parsed(line)
            fitted, left = self._fit(parsed)
            for name, value in fitted.items():
                columns[name][row] = value
            if left is not NOTHING or raw:
                rest = {} if left is NOTHING else left
                self.rest += 1
                self._seen = widened(self._seen, type_of(rest))
                if self.given:
                    self._note_unfit(self.payloads, rest, "")
                rests[row] = _rest_text(rest, raw)
        return self._made(kind, columns, rests)

    def _made(self, kind: str, columns: Mapping[str, list[Any]], rests: list[str | None]) -> pa.RecordBatch:
        import pyarrow as pa

        made: dict[str, pa.Array] = {"kind": pa.array([kind] * len(rests), pa.string())}
        for name, values in columns.items():
            if name == "event_time_ns":
                times = [None if each is None else each // 1000 for each in values]
                made["event_time"] = pa.array(times, arrow_type("time"))
            column = pa.array(values, arrow_type(self._columns[name]))
            made.update(_flattened(name, column) if self.flat else {name: column})
        made[REST] = pa.array(rests, pa.string())
        return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _short(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _only(fields: Fields, kept: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> Fields:
    """Returns the fields restricted to these leaves."""
    found: Fields = {}
    for name, kind in fields.items():
        here = (*path, name)
        if isinstance(kind, dict):
            if inner := _only(kind, kept, here):
                found[name] = inner
        elif here in kept:
            found[name] = kind
    return found


def _parsed(line: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Returns a line's members, and the raw text of members that parsers refuse (1e400)."""
    try:
        return _LINE.decode(line), {}
    except UNREADABLE:
        pass
    try:
        members = _MEMBERS.decode(line)
    except UNREADABLE as bad:
        raise LineUnreadable(f"a line is not an output record ({bad}); see photon status verifier") from None
    parsed: dict[str, Any] = {}
    raw: dict[str, bytes] = {}
    for name, text in members.items():
        try:
            parsed[name] = msgspec.json.decode(text)
        except UNREADABLE:
            raw[name] = bytes(text)
    return parsed, raw


def _rest_text(rest: Mapping[str, Any], raw: Mapping[str, bytes]) -> str:
    if not raw:
        return json_text(rest)
    members = [f"{json_text(name)}:{json_text(value)}" for name, value in rest.items()]
    members += [f"{json_text(name)}:{text.decode('utf-8', 'replace')}" for name, text in raw.items()]
    return f"{{{','.join(members)}}}"


def _flattened(name: str, column: pa.Array) -> dict[str, pa.Array]:
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        return {name: column}
    found: dict[str, pa.Array] = {}
    for field, each in zip(column.type, column.flatten(), strict=True):
        found |= _flattened(f"{name}{SEPARATOR}{field.name}", each)
    return found


def arrow_type(kind: ColumnType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, dict):
        return pa.struct([pa.field(name, arrow_type(each)) for name, each in kind.items()])
    if isinstance(kind, list):
        return pa.list_(arrow_type(kind[0]))
    if (digits := decimal_digits(kind)) is not None:
        return pa.decimal128(*digits)
    if kind.startswith("time"):
        return pa.timestamp("us", tz="UTC")
    if kind.startswith("float"):
        return pa.float64()
    return {"bool": pa.bool_(), "int": pa.int64(), "text": pa.string(), "json": pa.string()}[kind]
