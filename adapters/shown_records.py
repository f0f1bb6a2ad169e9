"""What the logs of events that were not joined may hold of a foreign record, and of why.

Where nothing is redacted that is the record as it stands in its log. Where something is, the adapter says what is
left of it (``Adapter.shown_record``); of a record that it cannot take apart nothing is, since nobody can tell where
in it the redacted fields stand. A reason may quote the record: what it quotes and is not left of it is masked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter, BadRecord, LogFile

MASK = "****"
_QUOTED = re.compile(r"""(?<!\w)(['"])(.+?)\1(?!\w)""", re.DOTALL)
_CUT = "….\\"
"""A quotation that was cut ends so."""


class ShownRecord(NamedTuple):
    """``record`` None: nothing of it may be shown."""

    record: bytes | None
    reason: str


def shown(adapter: Adapter | None, rows: Sequence[tuple[bytes, LogFile, str]]) -> list[ShownRecord]:
    """(record, its file, why it was not joined) -> what is written of it. ``adapter`` None: it redacts nothing."""
    if adapter is None or not adapter.hides:
        return [ShownRecord(record, reason) for record, _, reason in rows]
    left = Guard(adapter).each(rows, partial(_left, adapter))
    out = []
    for (record, _, reason), found in zip(rows, left, strict=True):
        kept = found if isinstance(found, bytes) else None  # a Fault: it did not come to an answer
        out.append(ShownRecord(kept, _without_quotations(reason, record, kept or b"")))
    return out


def shown_record(adapter: Adapter, record: bytes, file: LogFile) -> bytes | None:
    """What may be written of one record."""
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


def _readings(text: str) -> list[bytes]:
    """The bytes that a quotation stands for: as it is, and with its escapes undone."""
    text = text.rstrip(_CUT)
    found = [text.encode("utf-8", "surrogatepass")]
    with contextlib.suppress(UnicodeError):
        undone = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
        found.append(undone.encode("utf-8", "surrogatepass"))
        found.append(undone.encode("latin-1"))
    return [each for each in found if each]
