"""A whole deployment for another program: what ``photon up`` runs for a file is started, watched, held and ended.

``photon up`` itself supervises, in a process of its own in the background, as ``photon up --detach`` leaves it: there
is one supervisor, and ``photon status processes``, ``hold`` and ``down`` on the command line see the same run. Waits
are bounded.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from photon.config.errors import PhotonError, UsageError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.fleet.ledger import read_ledger
from photon.library.output import Output
from photon.supervision.control import NobodyListens, Reply, Request, ask
from photon.supervision.detached import Launched, UpFailed, ask_patiently, launch, stop_detached
from photon.supervision.run_directory import is_locked, run_directory
from photon.supervision.states import USAGE_EXIT, ServiceState, summary

POLL_S = 0.1
BEGIN_S = 60.0
"""``photon up`` answers within so long of its start, long before all that it runs is up."""
UP_S = 180.0
DOWN_S = 60.0
ASK_S = 180.0
SLACK_S = 10.0
"""A command has so long beyond its own time-out to say that it is over."""
EXIT_DONE, EXIT_USAGE, EXIT_ATTENTION = 0, 2, 3


class DeploymentFailed(PhotonError):
    """Something was not done, or the deployment is not there any more. One line."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of a deployment at one moment."""

    name: str
    """Its name in ``photon status processes``: ``joiner east-1``."""
    datacentre: str
    """It is lost with; empty: with none."""
    state: str
    """up, starting, not serving, silent, paused, held, restarting, failing or ended."""
    detail: str
    """Why it is not up, where that is known."""
    pid: int | None
    restarts: int
    uptime_s: float | None
    address: str | None
    """host:port."""

    @property
    def up(self) -> bool:
        return self.state == "up"


class Deployment:
    """What runs for a deployment file on this machine. Made by ``up`` or ``running``; not thread-safe.

    A context manager: leaving it ends what ``up`` has started, and nothing that ``running`` has found. A program that
    is killed leaves its deployment running, as a shell does; ``running`` finds it again.
    """

    def __init__(self, file: Path, run: Path, launched: Launched | None) -> None:
        self._file = file
        self._run = run
        self._launched = launched

    @classmethod
    def up(
        cls,
        file: str | Path,
        *,
        run: str | Path | None = None,
        unhealthy_after_s: float = 30.0,
        begin_s: float = BEGIN_S,
    ) -> Self:
        """Starts all processes of the file, and returns while they come up: ``wait_until_up`` waits for them.

        ``run``: the run directory; None: ``.photon-run`` next to the file. ``unhealthy_after_s``: a process that was
        up and is silent for so long, though it could run, is restarted; 0: never. Raises UsageError (the file has a
        mistake), RunBusy (it runs already), DeploymentFailed.
        """
        path = Path(file).absolute()
        directory = run_directory(path, None if run is None else Path(run))
        command = ["up", str(path), "--run", str(directory), "--unhealthy-after", str(unhealthy_after_s)]
        deployment = cls(path, directory, launch(directory, [*command, "--background"]))
        try:
            deployment._until_it_answers(begin_s)
        except BaseException:
            deployment._end_own()
            raise
        return deployment

    @classmethod
    def running(cls, file: str | Path, *, run: str | Path | None = None) -> Self:
        """One that runs already. Raises UsageError: nothing does."""
        path = Path(file).absolute()
        directory = run_directory(path, None if run is None else Path(run))
        if not is_locked(directory):
            raise UsageError(f"{directory}: nothing runs there; Deployment.up or photon up starts it")
        return cls(path, directory, None)

    # -- looking on --------------------------------------------------------------------------------------------
    @property
    def datacentres(self) -> tuple[str, ...]:
        """The datacentres of the file, by name. Raises ConfigError."""
        return tuple(sorted(self._settings().datacentre))

    def alive(self) -> bool:
        """Whether its ``photon up`` is running."""
        if self._launched is not None:
            return self._launched.process.poll() is None
        return is_locked(self._run)

    def processes(self) -> list[ProcessState]:
        """All of them as they are now. Raises DeploymentFailed: nothing runs any more, or it does not answer."""
        return [_state(each) for each in self._states()]

    def status(self, datacentre: str | None = None, *, timeout_s: float = ASK_S) -> dict[str, Any]:
        """What ``photon status -o json`` says (docs/status.md): ``datacentres``, a list, one or all. Raises
        DeploymentFailed, UsageError, TimeoutError."""
        more = [] if datacentre is None else ["--datacentre", datacentre]
        said = self._photon("status", "--config", self._file, *more, "-o", "json", timeout_s=timeout_s)
        found: dict[str, Any] = orjson.loads(said)
        return found

    def ledger(self, datacentre: str) -> dict[str, int]:
        """The counts of one datacentre, from its state on this machine. Raises UsageError, StateError."""
        pipelines = self._settings().datacentre
        if datacentre not in pipelines:
            raise UsageError(f"{datacentre}: no such datacentre; there are: {', '.join(sorted(pipelines))}")
        return read_ledger(self._file.parent / pipelines[datacentre].state)

    def output(self, datacentre: str | None = None) -> Output:
        """What one datacentre (None: the only one) has published. Raises ConfigError, UsageError."""
        return Output.of_deployment(self._file, datacentre)

    # -- waiting -----------------------------------------------------------------------------------------------
    def wait_until_up(self, timeout_s: float = UP_S) -> list[ProcessState]:
        """Until all processes are up. Raises TimeoutError (it goes on trying), UsageError (one of them says that its
        configuration is wrong), DeploymentFailed."""
        deadline = time.monotonic() + timeout_s
        while True:
            states = self._states()
            if states and all(each.state == "up" for each in states):
                return [_state(each) for each in states]
            if any(each.state == "failing" and each.exit_code == USAGE_EXIT for each in states):
                raise UsageError(f"{self._file}: {summary(states)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._file}: after {timeout_s:g} s {summary(states)}")
            time.sleep(POLL_S)

    # -- changing ----------------------------------------------------------------------------------------------
    def hold(self, *names: str, datacentre: str | None = None, timeout_s: float = UP_S) -> None:
        """Ends processes, which stay down until ``release``. ``names``: of ``processes()``, or kinds (``joiner``);
        none: all of the datacentre. Returns when they have ended. Raises UsageError, DeploymentFailed,
        TimeoutError."""
        self._change("hold", names, datacentre, timeout_s)

    def release(self, *names: str, datacentre: str | None = None, timeout_s: float = UP_S) -> None:
        """Starts held processes again, and waits until they are up. As ``hold``."""
        self._change("release", names, datacentre, timeout_s)

    def restart(self, *names: str, datacentre: str | None = None, timeout_s: float = UP_S) -> None:
        """Restarts processes, one after the other, each up before the next one ends. ``timeout_s``: for each. As
        ``hold``."""
        self._change("restart", names, datacentre, timeout_s)

    def down(self, timeout_s: float = DOWN_S) -> list[str]:
        """Ends all of it, whoever started it, and waits; names of the processes that were ended. Nothing is lost: the
        next ``up`` goes on. Raises DeploymentFailed: something has not ended."""
        try:
            ended = stop_detached(self._run, timeout_s)
            if self._launched is not None:
                self._launched.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DeploymentFailed(f"{self._run}: photon up has not ended after {timeout_s:g} s") from None
        except PhotonError as error:
            raise DeploymentFailed(str(error)) from None
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end_own()
            return
        with contextlib.suppress(PhotonError):  # the error that is under way says more
            self._end_own()

    def _settings(self) -> Settings:
        return load(self._file, environment=os.environ)

    # -- its processes -----------------------------------------------------------------------------------------
    def _until_it_answers(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._pid() is None:
            self._check()
            if time.monotonic() > deadline:
                raise DeploymentFailed(f"{self._run}: photon up does not answer after {timeout_s:g} s")
            time.sleep(POLL_S)
        self._check()

    def _check(self) -> None:
        """Raises UsageError, DeploymentFailed when the ``photon up`` that was started here has ended."""
        if self._launched is None:
            return
        try:
            self._launched.check()
        except UpFailed as ended:
            said = str(ended).removeprefix("photon: ")
            raise (UsageError(said) if ended.exit_code == EXIT_USAGE else DeploymentFailed(said)) from None

    def _pid(self) -> int | None:
        """Process id of the ``photon up`` that answers in the run directory, or None."""
        try:
            return ask(self._run, Request(do="ps")).pid
        except PhotonError:
            return None

    def _end_own(self) -> None:
        """What was started here, also what is left of it when its ``photon up`` was killed; nobody else's."""
        if self._launched is None:
            return
        process = self._launched.process
        if process.poll() is not None and is_locked(self._run):
            return  # another photon up runs there now
        if process.poll() is None and self._pid() != process.pid:  # not so far yet, or another was quicker
            process.terminate()
            try:
                process.wait(DOWN_S)
            except subprocess.TimeoutExpired:
                raise DeploymentFailed(f"{self._run}: photon up has not ended after {DOWN_S:g} s") from None
            return
        self.down()

    def _states(self) -> list[ServiceState]:
        self._check()
        try:
            reply: Reply = ask_patiently(self._run, Request(do="ps"))
        except NobodyListens:
            self._check()
            raise DeploymentFailed(f"{self._run}: nothing runs there any more") from None
        except PhotonError as error:
            raise DeploymentFailed(str(error)) from None
        return reply.services

    def _change(self, verb: str, names: Sequence[str], datacentre: str | None, timeout_s: float) -> None:
        self._check()
        more = [] if datacentre is None else ["--datacentre", datacentre]
        rounds = len(self._states()) if verb == "restart" else 1
        total_s, each_s = timeout_s * max(rounds, 1) + SLACK_S, f"{timeout_s:g}"
        self._photon(verb, self._file, *names, *more, "--run", self._run, "--timeout", each_s, timeout_s=total_s)

    def _photon(self, *arguments: str | Path, timeout_s: float) -> bytes:
        """What a command has written. Raises UsageError, DeploymentFailed, TimeoutError."""
        verb = arguments[0]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "photon", *map(str, arguments)],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self._file}: photon {verb} has not ended after {timeout_s:g} s") from None
        if done.returncode in (EXIT_DONE, EXIT_ATTENTION):
            return done.stdout
        lines = done.stderr.decode(errors="backslashreplace").strip().splitlines()
        said = lines[-1].removeprefix("photon: ") if lines else f"photon {verb} ended with {done.returncode}"
        raise UsageError(said) if done.returncode == EXIT_USAGE else DeploymentFailed(said)


def _state(of: ServiceState) -> ProcessState:
    return ProcessState(of.name, of.datacentre, of.state, of.detail, of.pid, of.restarts, of.uptime_s, of.address)
