"""Applies a shape to payloads: filters, derives, redacts and chooses fields. For all kinds of adapters.

Pure: the same pair always gives the same bytes. The key for hashes is read once, when the adapter is loaded. Parts
that a shape does not change keep their bytes, including numbers of any size and precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import orjson

from photon.adapters.conditions import Condition, compiled, value_test
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    Filtered,
    ForeignHeader,
    Headers,
    Joined,
    LogFile,
    Pairs,
    Payloads,
    Skipped,
    Unpaired,
)
from photon.adapters.formats.json_values import MISSING
from photon.adapters.shape import KEY_BYTES, Derived, Shape, shape_from_table, side_and_path
from photon.adapters.shown_records import MASK

Fields = dict[str, msgspec.Raw]  # a JSON object's members, with their values as written
Sides = dict[str, Fields]
_decode = msgspec.json.Decoder(Fields).decode
_PLACE = re.compile(r"\{((?:foreign|primary)\.[^{}]+)\}")
_SHOWN, _SHORT = 4, 8
HASH_BYTES = 16


class Shaper:
    def __init__(self, shape: Shape, where: str, key: bytes = b"") -> None:
        """``key``: the secret key of ``hash``. Raises AdapterError."""
        self._skip = [_tester(each, where) for each in shape.skip]
        self._filter = [(_tester(each, where), each.reason or _reason(each)) for each in shape.filter]
        self._derive = [(side_and_path(each.name, where), _maker(each, where)) for each in shape.derive]
        self._redact = [(side_and_path(name, where), how) for name, how in shape.redact.items()]
        self._key = key
        self._chosen = {"foreign": _chosen(shape.foreign), "primary": _chosen(shape.primary)}

    @property
    def hides(self) -> bool:
        """True if parts of foreign records are redacted."""
        return any(side == "foreign" for (side, _), _ in self._redact)

    @property
    def skips(self) -> bool:
        """True if some foreign records are not events."""
        return bool(self._skip)

    def is_skipped(self, foreign: bytes | None) -> bool:
        """True if this foreign payload's record is not an event. Records that are not text are never skipped."""
        if foreign is None:
            return False
        sides: Sides = {"foreign": _members(foreign, "foreign"), "primary": {}}
        return any(test(sides) for test in self._skip)

    def shaped(self, joined: Joined) -> Joined | Filtered:
        """Returns the shaped payloads.

        Raises BadRecord for a payload that is not a JSON object: it cannot be redacted, so it must not be written.
        """
        sides: Sides = {
            "foreign": _members(joined.foreign, "foreign"),
            "primary": _members(joined.primary, "primary"),
        }
        for test, reason in self._filter:
            if test(sides):
                return Filtered(reason)
        self._derived(sides)
        self._redacted(sides)
        return Joined(self._out("foreign", sides), self._out("primary", sides))

    def unmatched(self, foreign: bytes | None) -> bytes:
        """Returns the foreign payload of a joined record without a primary one. Raises BadRecord.

        No filter applies, since filters are about pairs, and nothing is derived from missing fields.
        """
        sides: Sides = {"foreign": _members(foreign, "foreign"), "primary": {}}
        self._derived(sides)
        self._redacted(sides)
        return self._out("foreign", sides)

    def shown(self, foreign: bytes | None) -> bytes:
        """Returns a foreign payload without redacted fields, for the logs of events that were not joined.

        Raises BadRecord.
        """
        sides: Sides = {"foreign": _members(foreign, "foreign"), "primary": {}}
        self._redacted(sides)
        return msgspec.json.encode(sides["foreign"])

    def _derived(self, sides: Sides) -> None:
        for (side, path), make in self._derive:
            made = make(sides)
            if made is not None:
                _put(sides[side], path, made)

    def _redacted(self, sides: Sides) -> None:
        for (side, path), how in self._redact:
            _hide(sides[side], path, partial(self._hidden, how=how))

    def _hidden(self, value: msgspec.Raw, how: str) -> msgspec.Raw | None:
        if how == "drop":
            return None
        text = _text(value)
        if how == "mask":
            return _raw(MASK + (text[-_SHOWN:] if len(text) > _SHORT else ""))
        return _raw(blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=HASH_BYTES).hexdigest())

    def _out(self, side: str, sides: Sides) -> bytes:
        chosen, fields = self._chosen[side], sides[side]
        if chosen is not None:
            kept = ((new, _find(fields, path)) for new, path in chosen)
            fields = {new: value for new, value in kept if value is not None}
        return msgspec.json.encode(fields)


def shaped_adapter(adapter: Adapter, table: Mapping[str, Any], where: str, base: Path) -> Adapter:
    """Changes ``adapter`` so that its output has this shape, and returns it. Raises AdapterError.

    Adapters in code call it at the end of their own ``__init__`` to have a shape of their own::

        shaped_adapter(self, {"redact": {"primary.email": "mask"}}, "billing", Path())
    """
    shape = shape_from_table(table, where)
    shaper = Shaper(shape, where, _key(shape, where, base))
    join, join_columns = adapter.join, adapter.join_columns
    unmatched_payload = adapter.unmatched_payload

    def unmatched(record: bytes, file: LogFile) -> bytes:
        return shaper.unmatched(unmatched_payload(record, file))

    def shaped(
        foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile
    ) -> Joined | Filtered | Unpaired:
        result = join(foreign, foreign_file, primary, primary_file)
        return shaper.shaped(result) if isinstance(result, Joined) else result

    def shaped_columns(pairs: Pairs) -> Payloads:
        return Payloads.of([_or_bad(shaper, each) for each in join_columns(pairs).rows()])

    columns = adapter.defines("join_columns")
    adapter.shape = {"table": dict(table), "where": where, "base": str(base)}
    adapter.join = shaped  # type: ignore[method-assign]
    adapter.unmatched_payload = unmatched  # type: ignore[method-assign]
    if columns:
        adapter.join_columns = shaped_columns  # type: ignore[method-assign]
    if shaper.hides:
        _showing(adapter, shaper)
    if shaper.skips:
        _skipping(adapter, shaper)
    return adapter


def _showing(adapter: Adapter, shaper: Shaper) -> None:
    def shown_record(record: bytes, file: LogFile) -> bytes | None:
        return shaper.shown(adapter.foreign_payload(record, file))

    adapter.shown_record = shown_record  # type: ignore[method-assign]


def _skipping(adapter: Adapter, shaper: Shaper) -> None:
    header, columns = adapter.foreign_header, adapter.header_columns

    def is_skipped(record: bytes, file: LogFile) -> bool:
        try:
            return shaper.is_skipped(adapter.foreign_payload(record, file))
        except BadRecord:  # its header reports it, or joining does
            return False

    def one(record: bytes, file: LogFile) -> ForeignHeader:
        if is_skipped(record, file):
            raise Skipped("skipped")
        return header(record, file)

    def in_columns(records: Sequence[bytes], file: LogFile) -> Headers:
        skipped = {row: Skipped("skipped") for row, record in enumerate(records) if is_skipped(record, file)}
        found = columns(records, file)
        return found._replace(others={**found.others, **skipped})

    if adapter.defines("header_columns"):
        adapter.header_columns = in_columns  # type: ignore[method-assign]
    adapter.foreign_header = one  # type: ignore[method-assign]


def _or_bad(
    shaper: Shaper, result: Joined | Filtered | Unpaired | BadRecord
) -> Joined | Filtered | Unpaired | BadRecord:
    if not isinstance(result, Joined):
        return result
    try:
        return shaper.shaped(result)
    except BadRecord as bad:
        return bad


def _key(shape: Shape, where: str, base: Path) -> bytes:
    if shape.hash_key_file is None:
        return b""
    path = base / shape.hash_key_file
    try:
        key = path.read_bytes()
    except OSError as error:
        raise AdapterError(
            f"cannot be read ({error.strerror})", str(path), f"correct {where}.hash_key_file"
        ) from None
    low, high = KEY_BYTES
    if not low <= len(key) <= high:
        raise AdapterError(f"has {len(key)} bytes", str(path), f"a key has {low} to {high} bytes")
    return key


def _members(payload: bytes | None, side: str) -> Fields:
    if payload is None:
        raise BadRecord(f"the {side} record is not UTF-8, so its fields cannot be shaped")
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRecord(f"the {side} payload is not a JSON object, so its fields cannot be shaped") from None


def _find(fields: Fields, path: str) -> msgspec.Raw | None:
    """Returns the field at ``path``. A field whose own name contains the dots comes first."""
    found = fields.get(path)
    if found is not None or "." not in path:
        return found
    name, _, rest = path.partition(".")
    inner = _inner(fields, name)
    return None if inner is None else _find(inner, rest)


def _inner(fields: Fields, name: str) -> Fields | None:
    """Returns the members of a field that is an object, or text that contains one."""
    value = bytes(fields.get(name, b"")).lstrip()
    try:
        if value.startswith(b'"'):
            value = msgspec.json.decode(value, type=str).lstrip().encode()
        return _decode(value) if value.startswith(b"{") else None
    except (msgspec.DecodeError, UnicodeError):  # text that is no JSON
        return None


def _set_inner(fields: Fields, name: str, inner: Fields) -> None:
    made = msgspec.json.encode(inner)
    is_text = _inner(fields, name) is not None and bytes(fields[name]).lstrip().startswith(b'"')
    fields[name] = msgspec.Raw(msgspec.json.encode(made.decode()) if is_text else made)


def _put(fields: Fields, path: str, value: msgspec.Raw | None) -> None:
    """Sets or removes a field. A path leads through objects; missing ones are created."""
    if path in fields or "." not in path:
        if value is None:
            fields.pop(path, None)
        else:
            fields[path] = value
        return
    name, _, rest = path.partition(".")
    inner = _inner(fields, name) or {}
    _put(inner, rest, value)
    _set_inner(fields, name, inner)


def _hide(fields: Fields, path: str, hidden: Callable[[msgspec.Raw], msgspec.Raw | None]) -> None:
    """Hides every field that the path may mean: names may contain dots, and no interpretation may leak."""
    if path in fields:
        value = hidden(fields[path])
        if value is None:
            del fields[path]
        else:
            fields[path] = value
    parts = path.split(".")
    for cut in range(1, len(parts)):
        name = ".".join(parts[:cut])
        inner = _inner(fields, name)
        if inner is not None:
            before = dict(inner)
            _hide(inner, ".".join(parts[cut:]), hidden)
            if inner != before:
                _set_inner(fields, name, inner)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(orjson.dumps(value))


def _text(value: msgspec.Raw) -> str:
    """Returns the text of a JSON string, or any other value as written."""
    data = bytes(value).strip()
    return str(msgspec.json.decode(data)) if data.startswith(b'"') else data.decode()


Test = Callable[[Sides], bool]


def _tester(condition: Condition, where: str) -> Test:
    side, path = side_and_path(condition.field, where)
    holds = value_test(condition, where)

    def test(sides: Sides) -> bool:
        raw = _find(sides[side], path)
        return holds(MISSING if raw is None else msgspec.json.decode(raw))

    return test


def _reason(condition: Condition) -> str:
    tests = msgspec.to_builtins(condition)
    said = ", ".join(f"{name} {value!r}" for name, value in tests.items() if name != "field" and value is not None)
    return f"{condition.field}: {said}"


def _maker(derived: Derived, where: str) -> Callable[[Sides], msgspec.Raw | None]:
    default = None if derived.default is None else _raw(derived.default)
    pattern = None if derived.pattern is None else compiled(derived.pattern, where)
    values = None if derived.values is None else {text: _raw(value) for text, value in derived.values.items()}
    pieces = _PLACE.split(derived.text or f"{{{derived.source}}}")
    names = [side_and_path(each, where) for each in pieces[1::2]]
    plain = derived.text is None and pattern is None and values is None

    def make(sides: Sides) -> msgspec.Raw | None:
        found = [_find(sides[side], path) for side, path in names]
        if any(each is None for each in found):
            return default
        known = [each for each in found if each is not None]
        if plain:
            return known[0]
        text = pieces[0] + "".join(_text(each) + piece for each, piece in zip(known, pieces[2::2], strict=True))
        if pattern is not None:
            match = pattern.search(text)
            if match is None or (text := match[1] if pattern.groups else match[0]) is None:
                return default
        return _raw(text) if values is None else values.get(text, default)

    return make


def _chosen(wanted: list[str] | dict[str, str] | None) -> list[tuple[str, str]] | None:
    """Returns (new name, path) pairs in order."""
    if wanted is None:
        return None
    return list(wanted.items()) if isinstance(wanted, dict) else [(name, name) for name in wanted]
