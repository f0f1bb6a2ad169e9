"""Rules that turn a field's text, or a part of it, into a key or an id. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

from photon.adapters.contract import BadRecord
from photon.adapters.formats.json_values import name_bytes, parse_object
from photon.adapters.key_lists import keys_in

PARTS_MAX = 8
DIGITS_MAX = 400  # digits of a number, before and after its point: as many as a double may have
SHOWN_BYTES = 40
_NUMBER = re.compile(rb"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")
_UUID = re.compile(
    rb"(?:urn:uuid:)?[{(]?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})[)}]?",
    re.IGNORECASE,
)
HEADERS = {
    "traceparent": re.compile(rb"^[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}"),  # its trace id
    "x-amzn-trace-id": re.compile(rb"(?:^|[;\s\"])Root=([^;\s\"]+)"),
}
Normaliser = Callable[[bytes], bytes]


class KeyPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A field of a key, or of an id, and the rules that decide which values are equal, in this order."""

    field: str
    pattern: str | None = None  # the value is the first group, or the whole match, of this pattern
    part: str | None = None  # or the value is this part, see ``named_part``
    trim: bool = False  # ignores white space around the value
    case: Literal["fold"] | None = None  # upper and lower case are equal (Unicode's full folding)
    # ``number``: compared by value, so 7, "007" and 7.0 are equal; ``uuid``: by its digits. Absent: as written
    kind: Literal["number", "uuid"] | None = msgspec.field(name="as", default=None)
    # foreign: the field holds several keys, each of a primary event: ``true`` for a JSON list, or the
    # text that separates them. ``pattern`` and ``part`` find that text; with a list they apply to each member.
    each: bool | str = False

    @property
    def plain(self) -> bool:
        """True if its values are compared as written."""
        return self == KeyPart(field=self.field)

    def normaliser(self, role: str = "key", absent: Collection[bytes] = ()) -> Normaliser:
        """Returns a function that turns a field's text into a key (or id).

        It raises BadRecord for text that does not fit these rules, or whose result marks an absent value.
        """
        field, steps = f"{role} field {self.field!r}", list[Normaliser]()
        if self.pattern is not None:
            steps.append(partial(_found, re.compile(self.pattern.encode()), field))
        if self.part is not None:
            steps.append(partial(named_part(self.part), field))
        if self.trim or self.case is not None:
            steps.append(partial(_written, field, self.trim, self.case is not None))
        if self.kind is not None:
            steps.append(partial(number if self.kind == "number" else uuid, field))

        def normalised(text: bytes) -> bytes:
            for step in steps:
                text = step(text)
            if text and text not in absent:
                return text
            raise BadRecord(f"{field} is {'absent' if text else 'empty'}")

        return normalised


def members_of(rule: KeyPart, absent: Collection[bytes] = ()) -> Callable[[bytes], list[bytes]]:
    """Returns a function that splits the text of a field with ``each`` into keys. It raises BadRecord.

    Members that are empty or mark an absent value are left out.
    """
    each = msgspec.structs.replace(rule, each=False)
    split: Callable[[bytes], list[bytes]] = keys_in
    if isinstance(rule.each, str):
        separator = rule.each.encode()
        found = KeyPart(field=rule.field, pattern=rule.pattern, part=rule.part).normaliser()
        each = msgspec.structs.replace(each, pattern=None, part=None)

        def split(text: bytes) -> list[bytes]:
            return found(text).split(separator)

    normalised, nothing = each.normaliser("key", absent), {b"", *absent}

    def members(text: bytes) -> list[bytes]:
        values = [value.strip() for value in split(text)] if rule.trim else split(text)
        return [normalised(value) for value in values if value not in nothing]

    return members


def named_part(name: str) -> Callable[[str, bytes], bytes]:
    """Returns a function that takes a field's name and text and extracts the part ``name``. Raises ValueError.

    ``?NAME``: a member of a URL's query; ``.PATH``: a member of JSON; or one of ``HEADERS``.
    """
    if name in HEADERS:
        return partial(_found, HEADERS[name])
    if len(name) > 1 and name[0] == "?":
        return partial(_query_member, re.compile(rb"(?:^|[?&])%b=([^&\s\"]*)" % re.escape(name[1:].encode())))
    if len(name) > 1 and name[0] == ".":
        return partial(_json_member, name[1:])
    raise ValueError(f"write ?NAME (of a URL's query), .PATH (of JSON), {' or '.join(HEADERS)}")


def _found(pattern: re.Pattern[bytes], field: str, text: bytes) -> bytes:
    match = pattern.search(text)
    found = None if match is None else match[1] if pattern.groups else match[0]
    if found is None:
        raise BadRecord(f"{field} is {_shown(text)}, which lacks the named part")
    return found


def _query_member(pattern: re.Pattern[bytes], field: str, text: bytes) -> bytes:
    found = _found(pattern, field, text.partition(b"#")[0])
    return unquote_to_bytes(found.replace(b"+", b" ")) if b"%" in found or b"+" in found else found


def _json_member(path: str, field: str, text: bytes) -> bytes:
    try:
        return name_bytes(parse_object(text), path, "key", text)
    except BadRecord as bad:
        raise BadRecord(f"{field}, as JSON: {bad.reason}") from None


def _written(field: str, trim: bool, fold: bool, value: bytes) -> bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise BadRecord(f"{field} is not UTF-8") from None
    text = text.strip() if trim else text
    return (text.casefold() if fold else text).encode()


def uuid(field: str, text: bytes) -> bytes:
    """Returns a UUID in lower case, with hyphens. ``text`` may lack hyphens, have braces or be a URN."""
    match = _UUID.fullmatch(text)
    if match is None:
        raise BadRecord(f"{field} is {_shown(text)}, not a UUID")
    return b"-".join(match.groups()).lower()


def _shown(text: bytes) -> str:
    return repr(text[:SHOWN_BYTES].decode("utf-8", "backslashreplace"))


def number(field: str, text: bytes) -> bytes:
    """Returns the canonical spelling of a decimal number: no exponent, no redundant zeros. Raises BadRecord."""
    if text.isdigit() and text[0] != ord("0") and len(text) <= DIGITS_MAX:
        return text
    match = _NUMBER.fullmatch(text)
    whole, fraction = (match[2], match[3] or b"") if match else (b"", b"")
    if match is None or not whole + fraction:
        raise BadRecord(f"{field} is {_shown(text)}, not a number")
    digits = (whole + fraction).lstrip(b"0")
    point = len(digits) - len(fraction) + int(match[4] or 0)
    digits = digits.rstrip(b"0")
    if not digits:
        return b"0"
    if max(point, len(digits) - point, len(digits)) > DIGITS_MAX:
        raise BadRecord(f"{field} is a number of more than {DIGITS_MAX} digits")
    before, behind = (
        digits[: max(point, 0)].ljust(point, b"0"),
        digits[max(point, 0) :].rjust(len(digits) - point, b"0"),
    )
    sign = b"-" if match[1] == b"-" else b""
    return sign + (before or b"0") + (b"." + behind if behind else b"")
