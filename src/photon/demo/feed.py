"""Writes generated lines into growing, rolled logs at the moments they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from photon.demo.generator import Line

ROLL_S = 3.0
"""A new file begins so often."""
STEP_S = 0.01


class Feed:
    """Two directories that fill up."""

    def __init__(self, lines: Sequence[Line], primary: Path, foreign: Path) -> None:
        """``lines`` sorted by arrival."""
        self._lines = lines
        self._directories = {True: primary, False: foreign}
        self.written = 0
        self.arrived_ns: dict[str, int] = {}
        """click id -> wall time of its first line's write"""

    async def run(self) -> None:
        """Writes every line at its moment, or as soon after as it can."""
        began = time.monotonic()
        at = 0
        while at < len(self._lines):
            now_us = int((time.monotonic() - began) * 1e6)
            end = at
            while end < len(self._lines) and self._lines[end].at_us <= now_us:
                end += 1
            if end > at:
                self._write(self._lines[at:end], now_us)
                at = end
            await asyncio.sleep(STEP_S)

    def _write(self, lines: Sequence[Line], now_us: int) -> None:
        roll = int(now_us / 1e6 / ROLL_S)
        for primary, name in ((True, "queries"), (False, "clicks")):
            data = b"".join(line.data for line in lines if line.primary is primary)
            if data:
                with open(self._directories[primary] / f"{name}-{roll:04d}.log", "ab", buffering=0) as file:
                    file.write(data)
        wall = time.time_ns()
        for line in lines:
            if not line.primary and line.data.endswith(b"}\n") and line.data.startswith(b'{"click_id":"'):
                self.arrived_ns.setdefault(orjson.loads(line.data)["click_id"], wall)
        self.written += len(lines)
