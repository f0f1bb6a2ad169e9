"""Controls a run from another process: ``photon up --detach``, ``status processes``, ``down``. Blocking."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.errors import PhotonError
from photon.supervision.control import ControlFailed, NobodyListens, Reply, Request, ask
from photon.supervision.leftovers import end_leftovers, leftovers
from photon.supervision.process_log import last_said
from photon.supervision.run_directory import LOG_NAME, busy, is_locked, locked, wait_unlocked
from photon.supervision.states import USAGE_EXIT, ServiceState, summary
from photon.supervision.up import LOGS

POLL_S = 0.1
BETWEEN_S = 5.0  # how long to wait for a process that is starting or stopping: it has the lock but no socket


class UpFailed(PhotonError):
    """Raised if the background process stopped, or did not bring all processes up in time."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Launched:
    """A ``photon up`` that was started in the background."""

    process: subprocess.Popen[bytes]
    log: Path
    since: int  # offset in the log at which this run starts

    def check(self) -> None:
        """Raises UpFailed, with the last line of its log, if the process has stopped."""
        if (code := self.process.poll()) is not None:
            said = last_said(self.log, self.since) or f"photon up ended with exit code {code}, see {self.log}"
            raise UpFailed(said, code or 1)


def launch(run: Path, arguments: Sequence[str]) -> Launched:
    """Starts ``photon ARGUMENTS`` in the background. Raises RunBusy, OSError."""
    if is_locked(run):
        raise busy(run)
    log = run / LOGS / LOG_NAME
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        since = file.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "photon", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    return Launched(process, log, since)


def start_detached(
    run: Path, arguments: Sequence[str], timeout: float, say: Callable[[str], None]
) -> list[ServiceState]:
    """Starts ``photon ARGUMENTS`` in the background and waits until all its processes are up.

    ``say``: called for each process that fails meanwhile. Raises UpFailed, RunBusy, ControlFailed.
    """
    launched = launch(run, arguments)
    deadline = time.monotonic() + timeout
    told: set[str] = set()
    while True:
        launched.check()
        states = _states(run)
        if states and all(state.state == "up" for state in states):
            return states
        failing = [state for state in states if state.state == "failing"]
        for state in failing:
            if state.name not in told:
                told.add(state.name)
                say(f"{state.name} is failing: {state.detail}")
        if any(state.exit_code == USAGE_EXIT for state in failing):
            raise UpFailed(f"{summary(states)} (photon up keeps trying; photon down stops it)")
        if time.monotonic() > deadline:
            what = summary(states) if states else f"no status is available yet, see {launched.log}"
            raise UpFailed(f"after {timeout:g} s {what} (photon up keeps trying; photon down stops it)")
        time.sleep(POLL_S)


def _states(run: Path) -> list[ServiceState]:
    try:
        return ask(run, Request(do="ps")).services
    except NobodyListens:
        return []


def ask_patiently(run: Path, request: Request, timeout: float = 10.0) -> Reply:
    """Like ``ask``, but waits for a ``photon up`` that is starting or stopping. Raises NobodyListens,
    ControlFailed."""
    deadline = time.monotonic() + BETWEEN_S
    while True:
        try:
            return ask(run, request, timeout)
        except NobodyListens:
            if not is_locked(run):
                raise
            if time.monotonic() > deadline:
                raise ControlFailed(f"{busy(run)}; but its control socket does not answer") from None
        time.sleep(POLL_S)


def running(run: Path) -> list[str]:
    """Returns the names of the processes that ``stop_detached`` would stop. Raises ControlFailed."""
    try:
        return [state.name for state in ask_patiently(run, Request(do="ps")).services]
    except NobodyListens:
        return leftovers(run)


def stop_detached(run: Path, timeout: float) -> list[str]:
    """Stops a run, or the processes that a killed ``photon up`` left running, and waits until none is left.

    Returns the names of the stopped processes; empty if nothing ran. Raises ControlFailed.
    """
    try:
        reply = ask_patiently(run, Request(do="down"))
    except NobodyListens:
        if not run.is_dir():
            return []
        with locked(run):
            return end_leftovers(run)
    if not wait_unlocked(run, timeout):
        left = [state.name for state in _states(run) if state.pid and os.path.exists(f"/proc/{state.pid}")]
        what = ", ".join(left) or "itself"
        raise ControlFailed(f"photon up (pid {reply.pid}) has not stopped after {timeout:g} s; still running: {what}")
    return [state.name for state in reply.services]
