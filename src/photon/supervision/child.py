"""A process that a supervisor started: the program begun afresh, or a copy of a zygote (zygote.py)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Protocol


class Child(Protocol):
    """What a supervisor does with one; ``asyncio.subprocess.Process`` is one."""

    @property
    def pid(self) -> int:
        """Process id; nobody else's while ``returncode`` is None."""
        ...

    @property
    def returncode(self) -> int | None:
        """Exit code, minus the signal's number; None while it lives."""
        ...

    async def wait(self) -> int:
        """Until it has ended: its ``returncode``."""
        ...

    def kill(self) -> None:
        """SIGKILL; nothing once it has ended."""
        ...


async def begin(arguments: Sequence[str], log: BinaryIO, environment: Mapping[str, str]) -> Child:
    """Executes ``photon ARGUMENTS``; its standard input ends with this process. ``environment``: beside our own.

    Raises OSError.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "photon",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, **environment} if environment else None,
        start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops them in order
    )
