"""Runs the commands of a run, waiting for each to end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from photon.lab.chaos.api import ChaosFailed


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        said = self.err.strip().splitlines() or self.out.strip().splitlines()
        return said[-1] if said else f"exit code {self.code}"


async def run_command(command: Sequence[str], timeout: float, called: str = "") -> Done:
    """Runs a command for at most ``timeout`` seconds; messages call it ``called``. Raises ChaosFailed if it cannot be
    run, or does not end."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        raise ChaosFailed(f"{command[0]}: cannot be run ({error.strerror})") from None
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ChaosFailed(f"{called or ' '.join(command[:4])} has not ended after {timeout:g} s") from None
    return Done(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def run_photon(arguments: Sequence[str], timeout: float, codes: Sequence[int] = (0,)) -> Done:
    """Runs ``photon ARGUMENTS``. Raises ChaosFailed, also if its exit code is not in ``codes``."""
    called = f"photon {' '.join(arguments)}"
    done = await run_command((sys.executable, "-m", "photon", *arguments), timeout, called)
    if done.code not in codes:
        raise ChaosFailed(f"{called}: {done.last}")
    return done
