"""Runs the ``photon`` command as a person would; only processes started here are signalled."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tests.integration.forked import Process, begin

POLL_S, POLL_MOST_S = 0.05, 1.0
UP_S = 150.0


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, int]:
        parsed: dict[str, int] = json.loads(self.out)
        return parsed


def photon(*arguments: str | Path, timeout: float = 120.0, env: dict[str, str] | None = None) -> Result:
    """Runs a command to its end."""
    process = begin(*arguments, stdout=PIPE, stderr=PIPE, text=True, env={**os.environ, **(env or {})})
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return Result(process.wait(), out, err)


@contextlib.contextmanager
def running(*arguments: str | Path, log: Path, env: dict[str, str] | None = None) -> Iterator[Process]:
    """A command in the background; killed at the end if it still runs."""
    with open(log, "ab") as file:
        process = begin(*arguments, stdout=file, stderr=file, env={**os.environ, **(env or {})})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Detached:
    """The processes that ``photon up --detach`` runs of a deployment file, including all earlier ones."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.pids: set[int] = set()

    def up(self) -> dict[str, dict[str, Any]]:
        """Its processes, by name."""
        done = photon("up", self.file, "--detach", "--timeout", f"{UP_S:g}", "-o", "json", timeout=2 * UP_S)
        assert done.code == 0, done.err
        return self.seen(done)

    def seen(self, said: Result) -> dict[str, dict[str, Any]]:
        rows = {row["name"]: row for row in json.loads(said.out)["processes"]}
        self.pids |= {row["pid"] for row in rows.values() if row["pid"] is not None}
        return rows

    def down(self) -> Result:
        done = photon("down", self.file, timeout=2 * UP_S)
        for pid in filter(alive, self.pids):  # only after a failure
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return done


def interrupt(process: Process, timeout: float = 30.0) -> int:
    """Ctrl-C; returns the exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(timeout)


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:  # it has ended
        return []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()):
                found += [child, *children(child)]
    return found


def alive(pid: int | None) -> bool:
    """True if a process runs; a zombie does not, nor does ``None``."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # gone, or disappearing while we read
        return False


def until(condition: Callable[[], object], timeout: float, what: str) -> None:
    """Polls until the condition is true, slow ones less often. Raises AssertionError."""
    deadline = time.monotonic() + timeout
    began = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(min(max(POLL_S, 4 * (now - began)), POLL_MOST_S))
        began = time.monotonic()


async def soon(condition: Callable[[], object], timeout: float, what: str) -> None:
    """Like ``until``, on an event loop; awaits awaitable results."""
    deadline = time.monotonic() + timeout
    while not (await holds if inspect.isawaitable(holds := condition()) else holds):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        await asyncio.sleep(2 * POLL_S)


def drawn_seed() -> int:
    """A fresh seed, or the one to replay; printed, so that a failure shows it."""
    seed = int(os.environ.get("PHOTON_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"PHOTON_SEED={seed}")
    return seed
