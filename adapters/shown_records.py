"""Redacts the records and reasons that are written for events that were not joined.

Without redaction, the record is written as in its log. With redaction the adapter returns the record without those
fields (``Adapter.shown_record``); an unparsable record is left out, as its redacted fields cannot be located. A
reason may quote the record, or mention a value of it: text of the record that is not in the shown part is masked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter, BadRecord, LogFile
from photon.adapters.formats.delimited import as_in_log

MASK = "****"
_QUOTED = re.compile(r"""(?<!\w)(['"])(.+?)\1(?!\w)""", re.DOTALL)
_PLACE = re.compile(r" \([^()\s]+\.py:\d+\)$")  # the line of code at the end of a reason
_NUMBERED = re.compile(rb"[\w.+@-]*\d[\w.+@-]*")
_PIECE_BYTES = 5  # shorter pieces without a digit may be in the reason by chance
_CUT = "….\\"  # the end of a truncated quotation


class ShownRecord(NamedTuple):
    """``record`` is ``None`` if nothing of it may be shown."""

    record: bytes | None
    reason: str


def shown(adapter: Adapter | None, rows: Sequence[tuple[bytes, LogFile, str]]) -> list[ShownRecord]:
    """Returns the text to write for each (record, its file, why it was not joined). No ``adapter``: no redaction."""
    if adapter is None:
        return [ShownRecord(record, reason) for record, _, reason in rows]
    if not adapter.hides:
        return [ShownRecord(as_in_log(record, adapter.foreign_framing), reason) for record, _, reason in rows]
    left = Guard(adapter).each(rows, partial(_left, adapter))
    out = []
    for (record, _, reason), found in zip(rows, left, strict=True):
        kept = found if isinstance(found, bytes) else None  # a Fault: it gave no answer
        reason = _without_quotations(reason, record, kept or b"")
        out.append(ShownRecord(kept, _without_pieces(reason, record, kept or b"")))
    return out


def shown_record(adapter: Adapter, record: bytes, file: LogFile) -> bytes | None:
    """Returns the part of one record that may be written."""
    (only,) = shown(adapter, [(record, file, "")])
    return only.record


def _left(adapter: Adapter, row: tuple[bytes, LogFile, str]) -> bytes | None:
    try:
        return adapter.shown_record(row[0], row[1])
    except BadRecord:
        return None


def _without_quotations(reason: str, record: bytes, kept: bytes) -> str:
    def masked(found: re.Match[str]) -> str:
        quote, text = found.groups()
        hidden = any(each in record and each not in kept for each in _readings(text))
        return f"{quote}{MASK}{quote}" if hidden else found[0]

    return _QUOTED.sub(masked, reason)


def _without_pieces(reason: str, record: bytes, kept: bytes) -> str:
    place = _PLACE.search(reason)
    end = len(reason) if place is None else place.start()
    text, mask, out, at = reason[:end].encode("utf-8", "surrogatepass"), MASK.encode(), bytearray(), 0

    def masked(found: re.Match[bytes]) -> bytes:
        return mask if found[0] in record and found[0] not in kept else found[0]

    text = _NUMBERED.sub(masked, text)
    while at < len(text):
        piece = text[at : at + _PIECE_BYTES]
        while len(piece) >= _PIECE_BYTES and at + len(piece) < len(text) and text[at : at + len(piece) + 1] in record:
            piece = text[at : at + len(piece) + 1]
        if len(piece) >= _PIECE_BYTES and piece in record and piece not in kept:
            out += mask
            at += len(piece)
        else:
            out.append(text[at])
            at += 1
    return out.decode("utf-8", "replace") + reason[end:]


def _readings(text: str) -> list[bytes]:
    """Returns the bytes that a quoted text may stand for: the text itself, and the text unescaped."""
    text = text.rstrip(_CUT)
    found = [text.encode("utf-8", "surrogatepass")]
    with contextlib.suppress(UnicodeError):
        undone = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
        found.append(undone.encode("utf-8", "surrogatepass"))
        found.append(undone.encode("latin-1"))
    return [each for each in found if each]
