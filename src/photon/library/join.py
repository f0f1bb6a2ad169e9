"""Runs ``photon join`` in a separate process next to the program: starts, watches and stops it.

The process is separate because a joiner that cannot continue safely (a failing disk, a slot taken over by another
joiner) exits at once, and must not take the caller's process with it. Nor do the caller's threads and the join wait
for each other. The join ends when the caller's process ends, for any reason.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import orjson

from photon.config.errors import PhotonError, UsageError
from photon.fleet.ledger import read_ledger
from photon.library.output import Output
from photon.local_join.site import Site
from photon.local_join.words import BY_COMMAND, NOTHING_SAID, Words
from photon.outputs import OutputPlace
from photon.supervision.zygote import begin_piped

SAID_LINES = 200
"""Number of the process's last lines that are kept."""
OWN = "photon: "
"""Prefix of the process's own messages."""
STOP_S = 60.0
EXIT_DONE, EXIT_USAGE, EXIT_ATTENTION = 0, 2, 3


class JoinStopped(PhotonError):
    """The join ended by itself with an error. All work until then is durable. The message is one line."""


@dataclass(frozen=True, slots=True)
class JoinEnded:
    """The result of a finished run."""

    ledger: dict[str, int]
    """Counts over all runs on this output: ``read``, the verdicts, ``pending`` and separately counted lines."""
    attention: str = ""
    """Problems to check: rejected records, logs not read to their end, events without a verdict. May be empty."""


def check_logs(*named: str | Path) -> None:
    """Raises UsageError for ``-``: a program cannot pass standard input as a log."""
    if any(str(each) == "-" for each in named):
        raise UsageError("-: only the command photon join reads standard input; name a directory, a file or a glob")


class Join:
    """Joins two log directories into ``output``, exactly once. A context manager: leaving it stops the join.

    A new run on the same output continues the join. Only one join at a time can use an output.
    """

    def __init__(
        self,
        primary: str | Path,
        foreign: str | Path,
        output: str | Path,
        *,
        config: str | Path | None = None,
        join: str | None = None,
        once: bool = False,
        keep_pending: bool = False,
        settings: Sequence[str] = (),
        words: Words = NOTHING_SAID,
    ) -> None:
        """The parameters are the options of ``photon join``. ``config``: ``None`` means that it is inferred from the
        logs and ``words``. ``settings``: KEY=VALUE.

        Raises UsageError.
        """
        check_logs(primary, foreign)
        self.once = once
        self.config = None if config is None else Path(config)
        self.directory = Path(output)
        self._command = [sys.executable, "-m", "photon", "join", "--stop-with-parent", "--quiet", "-o", "json"]
        self._command += ["--primary", str(primary), "--foreign", str(foreign), "--output", str(output)]
        self._command += ["--config", str(config)] if config is not None else []
        self._command += ["--join", join] if join is not None else []
        self._command += ["--once"] if once else []
        self._command += ["--keep-pending"] if keep_pending else []
        self._command += [part for each in settings for part in ("--set", each)]
        self._command += words.options()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: deque[str] = deque(maxlen=SAID_LINES)
        self._result = b""
        self._readers: list[threading.Thread] = []

    # -- running -----------------------------------------------------------------------------------------------
    def start(self) -> Self:
        """Starts the join's process. Raises UsageError if it is already running."""
        if self._process is not None and self._process.poll() is None:
            raise UsageError(f"{self.directory}: this join is already running")
        self._process = begin_piped(self._command, {"NO_COLOR": "1"})
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._keep_result, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._keep_said, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        return self

    def running(self) -> bool:
        """True if the join's process is running."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> JoinEnded:
        """Waits until the join ends: with ``once``, when every event has a verdict; otherwise when it is stopped or
        fails.

        Raises TimeoutError (the join still runs), JoinStopped, UsageError (a wrong configuration or directory).
        """
        process = self._started()
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.directory}: the join did not end within {timeout_s:g} s") from None
        self._close()
        said, example = _error_of(self._said)
        if code == EXIT_USAGE:
            raise UsageError(said or "wrong usage").with_example(example)
        if code not in (EXIT_DONE, EXIT_ATTENTION):
            problem = f"{self.directory}: the join ended with exit code {code}: {said or 'no message'}"
            raise JoinStopped(problem).with_example(example)
        return JoinEnded(orjson.loads(self._result), said if code == EXIT_ATTENTION else "")

    def stop(self, timeout_s: float = STOP_S) -> JoinEnded:
        """Asks the join to finish its current work and end, and waits for that. Raises like ``wait``; also
        JoinStopped if, with ``once``, some events have no verdict yet."""
        self._started()
        self._hang_up()
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kills the join's process at once. Nothing is lost: the next run continues."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.running():
            return
        if kind is None:
            self.stop()
            return
        with contextlib.suppress(PhotonError, TimeoutError):  # the original error says more
            self.stop()
        self.kill()

    # -- status ---------------------------------------------------------------------------------------------------
    def ledger(self) -> dict[str, int]:
        """Returns the current counts (docs/ledger.md). Raises StateError."""
        return read_ledger(Site(self.directory).state)

    def said(self) -> tuple[str, ...]:
        """Returns the last lines that the join has printed: inferred settings, unreadable logs."""
        return tuple(line.removeprefix(OWN) for line in self._said)

    def output(self) -> Output:
        """Returns the join's published output, even while the join is still starting in a new directory."""
        return Output(OutputPlace(self.directory, Site(self.directory).state))

    # -- its process -------------------------------------------------------------------------------------------
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError(f"{self.directory}: this join was not started")
        return self._process

    def _hang_up(self) -> None:
        """Ends the process by closing its standard input, as the death of this process would."""
        process = self._started()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def _close(self) -> None:
        self._hang_up()
        for reader in self._readers:
            reader.join()

    def _keep_result(self, stream: IO[bytes]) -> None:
        with stream:
            self._result = stream.read()

    def _keep_said(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._said.append(line.decode(errors="backslashreplace").rstrip())


def _error_of(said: Iterable[str]) -> tuple[str, str]:
    """Returns a process's last error, one line, and the example file that followed it, which may be empty. Omits the
    shell command after an example."""
    lines = list(takewhile(lambda line: line != BY_COMMAND, said))
    last = next((at for at in reversed(range(len(lines))) if lines[at].startswith(OWN)), None)
    if last is not None:
        rest = lines[last + 1 :]
        example = "\n".join(rest).strip()
        if not example or not rest[0]:
            return lines[last].removeprefix(OWN), example
    return next((line.removeprefix(OWN) for line in reversed(lines) if line), ""), ""
