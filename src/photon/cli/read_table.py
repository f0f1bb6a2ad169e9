"""Output lines for people: one line each, in columns."""

from __future__ import annotations

from datetime import UTC, datetime

from photon.outputs import OutputBlock, decode

HEADER = f"{'kind':<10}{'event time':<28}{'written':<28}event  <-  source"
_NS = 10**9


def table(block: OutputBlock) -> bytes:
    """A line for each record of a block."""
    found = decode(block.data, block.start)
    rows = []
    for row in range(len(found.offset)):
        if found.torn[row] is not None:
            rows.append(f"{block.place.kind:<10}{block.name}:{found.offset[row]}: {_shown(found.torn[row])}")
            continue
        event = _shown((found.event_id[row] or b"").decode("utf-8", "backslashreplace"))
        reason = found.reason[row]
        why = f"  ({_shown(reason)})" if reason is not None else ""
        source = f"{_shown(found.source_file[row])}:{found.source_offset[row]}"
        times = f"{_time(found.event_time_ns[row]):<28}{found.written_at[row] or '':<28}"
        rows.append(f"{block.place.kind:<10}{times}{event or '-'}  <-  {source}{why}")
    return "".join(f"{row}\n" for row in rows).encode("utf-8", "backslashreplace")


def _shown(text: str | None) -> str:
    """Records come from anywhere: nothing of them may control a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text or "")


def _time(ns: int | None) -> str:
    if ns is None:
        return ""
    try:
        moment = datetime.fromtimestamp(ns // _NS, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % _NS // 1000:06d}Z"
