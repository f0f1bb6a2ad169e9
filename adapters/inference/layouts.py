"""Turns a sample's text into records: finds its encoding, colours, layout of JSON, and lines that belong together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from photon.adapters.contract import BadRecord
from photon.adapters.formats.encodings import UTF8, looks_utf16
from photon.adapters.formats.json_objects import JsonObjects
from photon.adapters.formats.json_values import parse_object
from photon.adapters.formats.text_lines import COLOUR, LINE_END
from photon.config.words import many

OBJECTS_BYTES = 1 << 20  # of each file that are looked at for JSON over several lines
LIST_MIN = 3
HEAD_LINES = 3  # where the list that a JSON object consists of begins
BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_STARTS = re.compile(rb'\{(?:\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[-+.0-9eE]+|true|false|null|[\[{])?,?)?')
_LISTS = re.compile(rb"\s*\{\s*\"([^\"\\]{1,80})\"\s*:\s*\[")
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # no characters of cp1252
_BEGINS = (
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:",
    r"\[\d{4}-\d\d-\d\d[T ]\d\d:",
    r"\d\d/[A-Z][a-z]{2}/\d{4}[: ]",
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:",
)
_CONTINUES = re.compile(rb"\s|at |\.\.\. \d|Caused by|Traceback|[\w.]+(?:Error|Exception)\b|[\w.]+: ")
LETTERS_SHARE = 0.8  # least share of letters among non-ASCII bytes, if they are text
CONTINUES_SHARE = 0.8
BEGINS_SHARE = 0.05


class Text(NamedTuple):
    """Each file's records as UTF-8, the settings that produce them, and a line for each guess."""

    sample: dict[str, list[bytes]]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()


def plain(sample: Mapping[str, Sequence[bytes]]) -> Text | str:
    """Decodes a sample and removes colours. If that is impossible, returns a text that says why."""
    settings: dict[str, Any] = {}
    notes: list[str] = []
    files = {name: list(records) for name, records in sample.items()}
    encoding = _encoding(files)
    if encoding is None:
        return "hold UTF-16 text in some files only; name one kind of file, or convert all to UTF-8 (iconv)"
    if encoding != UTF8:
        settings["encoding"] = encoding
        files = {name: [_decoded(each, encoding) for each in records] for name, records in files.items()}
        why = "the text has its byte order mark or zero bytes"
        if encoding != "utf-16":
            why = "the text is not UTF-8, and other encodings would only change letters"
        notes.append(f'encoding = "{encoding}": {why}')
    if any(b"\x1b[" in record for records in files.values() for record in records):
        settings["colours"] = True
        files = {name: [COLOUR.sub(b"", each) for each in records] for name, records in files.items()}
        notes.append("colours = true: terminal colours are removed from the lines")
    return Text(files, settings, tuple(notes))


def _encoding(files: Mapping[str, Sequence[bytes]]) -> str | None:
    """Returns the files' encoding; ``None`` if they have several."""
    wide = {looks_utf16(records[0]) for records in files.values() if records}
    if True in wide:
        return None if False in wide else "utf-16"
    odd = [record for records in files.values() for record in records if not record.isascii()]
    if not odd or any(map(_is_utf8, odd)):
        return UTF8
    text = b"".join(odd).decode("iso8859-1")
    strange = [each for each in text if not each.isascii()]
    if 2 * len(strange) > len(text) or sum(map(str.isalpha, strange)) < LETTERS_SHARE * len(strange):
        return UTF8
    return "iso8859-1" if any(map(_UNDEFINED.search, odd)) else "cp1252"


def _decoded(record: bytes, encoding: str) -> bytes:
    if encoding == "utf-16" and not record.startswith(UTF16_BOMS):
        encoding = "utf-16-le"
    return record.decode(encoding, "replace").encode()


def _is_utf8(record: bytes) -> bool:
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_objects(
    sample: dict[str, list[bytes]], records: Sequence[bytes]
) -> tuple[list[bytes], dict[str, Any]] | str | None:
    """Returns the objects, and the settings, of JSON that is not one object a line.

    A text says why it cannot be read; ``None`` means that the sample is not such JSON.
    """
    first = records[0].removeprefix(BOM).strip()
    named = _LISTS.match(b"\n".join(records[:HEAD_LINES]).removeprefix(BOM))
    name, seen = "", ""
    if first.startswith(b"["):
        seen = _array(first)
    elif first.startswith(b"{") and _STARTS.fullmatch(first):
        seen = "JSON objects of several lines each"
    elif first.startswith(b"{") and b"}" in first and not _is_object(first):
        seen = "JSON objects without line ends between them"
    if named is not None and (found := _list(sample, records, named[1].decode("utf-8", "replace"))):
        name, seen = named[1].decode("utf-8", "replace"), found
    if not seen:
        return None
    objects = _objects(sample, name)
    if not objects:
        return f"hold {seen}, none of them readable"
    return objects, {"records": name} if name else {}


def _objects(sample: Mapping[str, Sequence[bytes]], name: str = "") -> list[bytes]:
    framing = JsonObjects(records=name)
    return [each for lines in sample.values() for each in _cut(framing, b"\n".join(lines)[:OBJECTS_BYTES])]


def _cut(framing: JsonObjects, data: bytes) -> list[bytes]:
    """Returns the records up to the first text that is not JSON."""
    data = data.removeprefix(BOM)
    text, good, bad = b"", 0, len(data) + 1
    while bad - good > 1:
        middle = len(data) if bad > len(data) else (good + bad) // 2
        try:
            text, good = framing.cut(data[:middle], b"").text, middle
        except BadRecord:
            bad = middle
    return text.split(b"\n")[:-1]


def _array(first: bytes) -> str:
    """Describes a JSON array, on one line or over many; empty for lines that begin with a time in brackets."""
    rest = first[1:].strip()
    if rest and rest[:1] not in b'{[]"':
        return ""
    try:
        items = orjson.loads(first)
    except orjson.JSONDecodeError:
        return "one JSON array over several lines or in a very long one" if not rest or rest[:1] in b"{" else ""
    return f"a JSON array of {len(items):,} members in one line"


def _list(sample: Mapping[str, Sequence[bytes]], records: Sequence[bytes], name: str) -> str:
    """Describes objects whose content is the list ``name``; empty if they hold anything else."""
    whole = _objects(sample)[:100]
    lists = [found for record in whole if (found := _list_of(record, name)) is not None]
    if whole and len(lists) == len(whole) and any(map(len, lists)):
        return f"{many(len(whole), 'JSON object')} with a list `{name}` of {sum(map(len, lists)):,} objects"
    if not whole and b"".join(records).count(b"{") > LIST_MIN:
        return f"one long JSON object with a list `{name}`"
    return ""


def _list_of(record: bytes, name: str) -> list[Any] | None:
    """Returns the objects in the list ``name`` of a JSON object; ``None`` if the object holds other content."""
    try:
        fields = parse_object(record)
    except BadRecord:
        return None
    found = fields.get(name)
    named = any(type(value) in (str, int) for other, value in fields.items() if other != name)
    if not isinstance(found, list) or named or not all(isinstance(each, dict) for each in found):
        return None
    return found


def _is_object(record: bytes) -> bool:
    try:
        parse_object(record)
    except BadRecord:
        return False
    return True


def gathered(sample: Mapping[str, Sequence[bytes]]) -> tuple[str, dict[str, list[bytes]]] | None:
    """Recognises records of several lines, such as stack traces. Returns the pattern of their first lines, and the
    records."""
    for begins in _BEGINS:
        match = re.compile(begins.encode()).match
        if not all(match(records[0]) for records in sample.values() if records):
            continue
        lines = [record for records in sample.values() for record in records]
        others = [each for each in lines if not match(each)]
        alike = sum(_CONTINUES.match(each) is not None for each in others)
        enough = len(lines) - len(others) >= max(2, BEGINS_SHARE * len(lines))
        if others and enough and alike >= CONTINUES_SHARE * len(others):
            return begins, {name: _joined(records, match) for name, records in sample.items()}
    return None


def _joined(records: Sequence[bytes], begins: Callable[[bytes], object]) -> list[bytes]:
    out: list[list[bytes]] = []
    for record in records:
        if begins(record) or not out:
            out.append([])
        out[-1].append(record)
    return [LINE_END.join(each) for each in out]
