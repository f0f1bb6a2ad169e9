"""A sensor and an operator for Airflow 3 over two commands of Photon, which has to be on the worker's PATH.

Both go by the commands' exit codes, and hand on what they say in JSON (XCom).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException

NOT_YET = 3  # photon watermark wait
PROBLEMS = 3  # photon spark verify
USAGE = 2


class WatermarkSensor(BaseSensorOperator):
    """Waits until every record before ``until`` that will ever be published is published.

    ``until``: event time as ``photon watermark wait`` takes it. ``percentile``: until 99 % of them are.
    """

    template_fields = ("until", "config")

    def __init__(self, *, until: str, config: str, percentile: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.until, self.config, self.percentile = until, config, percentile

    def poke(self, context: Any) -> PokeReturnValue:
        which = "--percentile" if self.percentile else "--final"
        done = _photon("watermark", "wait", self.until, which, "--timeout", "0", "--config", self.config)
        if done.returncode not in (0, NOT_YET):
            raise _failed(done)
        return PokeReturnValue(done.returncode == 0, json.loads(done.stdout))


class VerifyOperator(BaseOperator):
    """Verifies event times ``since`` <= t < ``until``; problems that it finds fail the task at once, as another try
    would find them again."""

    template_fields = ("since", "until", "config", "report")

    def __init__(
        self, *, since: str, until: str, config: str, report: str, options: Sequence[str] = (), **kwargs: Any
    ) -> None:
        """``options``: more of ``photon spark verify``, as ``["--master", "spark://host:7077"]``."""
        super().__init__(**kwargs)
        self.since, self.until, self.config, self.report, self.options = since, until, config, report, options

    def execute(self, context: Any) -> Any:
        times = ("--from", self.since, "--to", self.until)
        done = _photon("spark", "verify", *times, "--config", self.config, "--report", self.report, *self.options)
        if done.returncode == PROBLEMS:
            raise AirflowFailException(f"there are problems: {self.report}/report.html\n{done.stdout}")
        if done.returncode != 0:
            raise _failed(done)
        return json.loads(done.stdout)


def _photon(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["photon", *words, "-o", "json"], capture_output=True, text=True, check=False)


def _failed(done: subprocess.CompletedProcess[str]) -> AirflowException:
    """To be tried again, unless the command was given wrongly."""
    kind = AirflowFailException if done.returncode == USAGE else AirflowException
    return kind(f"exit code {done.returncode}: {done.stderr.strip()}")
