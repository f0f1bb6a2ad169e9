"""A framing as a user would write one: each record preceded by its length, one byte. ``state`` counts records modulo
7."""

from __future__ import annotations

from collections.abc import Iterable

from photon.adapters.contract import Cut, Framing


class Prefixed(Framing):
    def cut(self, data: bytes, state: bytes) -> Cut:
        at, lines = 0, []
        count = state[0] if state else 0
        while at < len(data) and (end := at + 1 + data[at]) <= len(data):
            if data[at] == 255:
                raise ValueError("no record is that long")
            lines.append(data[at + 1 : end] + (b"\r" if count == 6 else b"") + b"\n")
            at, count = end, (count + 1) % 7
        return Cut(b"".join(lines), at, bytes([count]))


def prefixed(records: Iterable[bytes]) -> bytes:
    return b"".join(bytes([len(each)]) + each for each in records)
