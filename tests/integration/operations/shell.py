"""Runs the blocks of a runbook as an operator types them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.forked import on_path
from tests.integration.operations.runbook import Run, missing

BLOCK_S = 900.0  # much more than needed on a quiet machine


class StepFailed(AssertionError):
    """A step did not do what the runbook says: its place and its output."""


class Shell:
    """``directory`` is the operator's; variables that a block sets last for the next ones."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        """Commands are copies (forked.py), except those of another release."""
        self._directory = directory
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, **environment, "PATH": path, "COLUMNS": "220"}
        self._pass_fds: tuple[int, ...] = ()
        if "PYTHONPATH" not in environment:
            self._environment, server = on_path(self._environment)
            self._pass_fds = (server,)
        self._variables = directory.parent / "variables.sh"

    def run(self, name: str, step: Run) -> str:
        """Its output on both streams. Raises StepFailed."""
        kept = shlex.quote(str(self._variables))
        script = f"set -a\n{self._known()}\n{step.script}\n{{ export -p; declare -f; }} > {kept}\n"
        process = subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            pass_fds=self._pass_fds,
        )
        try:
            said, _ = process.communicate(timeout=BLOCK_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own process group
            said, _ = process.communicate()
            raise StepFailed(f"{name}:{step.line}: not within {BLOCK_S:g} s\n{step.script}\n{said}") from None
        print(f"--- {name}:{step.line}: exit code {process.returncode}\n{step.script}{said}")
        if process.returncode != step.code:
            raise StepFailed(
                f"{name}:{step.line}: exit code {process.returncode}, {step.code} was expected\n{step.script}\n{said}"
            )
        if lines := missing(step.expected, said):
            raise StepFailed(f"{name}:{step.line}: it does not say\n" + "\n".join(lines) + f"\nbut\n{said}")
        return said

    def _known(self) -> str:
        return f". {shlex.quote(str(self._variables))}" if self._variables.exists() else ""
