"""Error texts for an adapter that raised, broke the contract with its return value, or did not return."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from opcode import opmap
from types import FrameType
from typing import cast

import orjson

from photon.adapters.contract import Adapter, BadRecord, Joined
from photon.adapters.formats.json_check import LEVELS_MAX, are_bare, is_deep, is_json

MODULE_PREFIX = "photon_adapter_"  # Prefix of the names of modules made from one-file adapters
UNPRINTABLE = "which cannot be printed"
PRINTED_MAX = 2000  # characters
KEY_BYTES_MAX = 4 << 20
_INT64 = 2**63


def describe(error: BaseException, adapter: Adapter | None = None) -> str:
    """Describes an adapter's exception and the innermost line of its own files, on one line."""
    if isinstance(error, BadRecord):
        return printed(error.reason)
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [at for at in frames if is_own(at[0], adapter)]
    place = (own or frames)[-1:]
    where = "".join(f" ({frame.f_code.co_filename}:{line})" for frame, line in place)
    text = printed(error)
    said = f": {text}" if text != UNPRINTABLE else f", {UNPRINTABLE}"
    return f"the adapter raised {type(error).__name__}{said}{where}".replace("\n", " ")


def printed(value: object) -> str:
    """Returns ``str(value)``, at most ``PRINTED_MAX`` characters; ``UNPRINTABLE`` if user code in it raises."""
    try:
        return str(value)[:PRINTED_MAX]
    except BaseException as error:
        if is_interrupt(error):
            raise
        return UNPRINTABLE


def is_interrupt(error: BaseException) -> bool:
    """True for a KeyboardInterrupt that Ctrl-C raised, False for one that user code raised itself."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or at.tb_frame.f_globals.get("__name__") == "asyncio.runners":  # asyncio's handler of the signal
        return True
    # Signal handlers run between instructions or in a call, never in a ``raise``.
    return at.tb_frame.f_code.co_code[at.tb_lasti] != opmap["RAISE_VARARGS"]


def is_own(frame: FrameType, owner: object | None) -> bool:
    """True if a frame runs code of the owner's own file or package, not of Photon or a library."""
    name = str(frame.f_globals.get("__name__"))
    if name.startswith(MODULE_PREFIX):
        return True
    if owner is None:
        return False
    home = type(owner).__module__.partition(".")[0]
    return home != "photon" and (name == home or name.startswith(home + "."))


def key_fault(key: object) -> str:
    """Returns why ``key`` is not a valid key; empty if it is valid."""
    if type(key) is bytes and 0 < len(key) <= KEY_BYTES_MAX:
        return ""
    if type(key) is bytes and key:
        return f"the adapter's key has {len(key):,} bytes; at most {KEY_BYTES_MAX:,} are allowed"
    return f"the adapter's key is {'empty' if key == b'' else type(key).__name__}; it must be bytes"


def header_fault(header: object) -> str:
    """Returns why ``header`` is not a valid foreign header; empty if it is valid."""
    key, time_ns, event_id = (getattr(header, name, None) for name in ("key", "event_time_ns", "event_id"))
    if key is None and time_ns is None:
        return f"the adapter's foreign_header gave a {type(header).__name__}, not a ForeignHeader"
    if fault := key_fault(key):
        return fault
    if event_id is not None and (type(event_id) is not bytes or not event_id):
        return "the adapter's event_id must be bytes and not empty"
    if type(time_ns) is not int or not -_INT64 <= time_ns < _INT64:
        return "the event time is not an int64 of nanoseconds"
    return ""


def payload_fault(payload: object) -> str | None:
    """Returns why a payload cannot be written; ``None`` for JSON on one line, and for ``None`` itself."""
    if payload is None:
        return None
    if not isinstance(payload, bytes):
        return f"the adapter's payload is {type(payload).__name__}, not bytes or None"
    if b"\n" in payload or b"\r" in payload:
        return "the adapter's payload holds a line end"
    if is_deep(payload):
        return f"the adapter's payload is nested more than {LEVELS_MAX} levels deep"
    return None if is_json(payload) else f"the adapter's payload is not JSON: {_said_by_parser(payload)}"


def _said_by_parser(text: bytes) -> str:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return str(error)
    return "its syntax is wrong"


def are_payloads(payloads: Sequence[object]) -> bool:
    """True if ``payload_fault`` accepts all of them. False is inconclusive."""
    some = [each for each in payloads if each is not None]
    return set(map(type, some)) <= {bytes} and are_bare(cast("list[bytes]", some))


def joined_fault(result: Joined) -> str | None:
    """Returns why one of the two payloads cannot be written; ``None`` if both can."""
    return payload_fault(result.foreign) or payload_fault(result.primary)
