"""Freed memory goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path

import pytest

from photon.config import allocator

PIECES, PIECE_BYTES = 400, 100_000  # pieces of the heap: glibc maps larger ones by itself

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="another C library")


def resident_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


@glibc
def test_what_lies_between_pieces_in_use_is_given_back() -> None:
    pieces = [b"x" * PIECE_BYTES for _ in range(PIECES)]
    kept = pieces[::10]
    del pieces
    before = resident_bytes()
    allocator.give_back()
    assert resident_bytes() < before - PIECES * PIECE_BYTES // 2
    assert len(kept) == PIECES // 10


async def test_it_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    times, often = 0, asyncio.Event()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        nonlocal times
        times += 1
        if times == 3:
            loop.call_soon_threadsafe(often.set)

    monkeypatch.setattr(allocator, "GIVE_BACK_SECONDS", 0.001)
    monkeypatch.setattr(allocator, "give_back", give_back)
    task = asyncio.create_task(allocator.keep_giving_back())
    await asyncio.wait_for(often.wait(), 10)
    task.cancel()
