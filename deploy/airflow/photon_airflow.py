"""A sensor and an operator for Airflow 3 over two commands of Photon, which has to be on the worker's PATH.

Both rely on the commands' exit codes, and pass on their JSON output (XCom).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException

NOT_YET = 3  # photon watermark wait
PROBLEMS, NOT_JUDGED = 3, 4  # photon spark verify
USAGE = 2


class WatermarkSensor(BaseSensorOperator):
    """Waits until every record before ``until`` that will ever be published is published.

    ``until``: event time as for ``photon watermark wait``. ``percentile``: waits only for 99 % of the records.
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
    """Verifies all days that are not closed. Problems fail the task at once, because a retry would find them again; a
    retry may judge days that could not be judged; otherwise the next night begins with them."""

    template_fields = ("config", "report")

    def __init__(self, *, config: str, report: str, options: Sequence[str] = (), **kwargs: Any) -> None:
        """``options``: further options of ``photon spark verify``, as ``["--master", "spark://host:7077"]``."""
        super().__init__(**kwargs)
        self.config, self.report, self.options = config, report, options

    def execute(self, context: Any) -> Any:
        done = _photon("spark", "verify", "--config", self.config, "--report", self.report, *self.options)
        if done.returncode == PROBLEMS:
            raise AirflowFailException(f"there are problems: {self.report}/report.html\n{done.stdout}")
        if done.returncode == NOT_JUDGED:
            raise AirflowException(f"not judged: {self.report}/report.html\n{done.stdout}")
        if done.returncode != 0:
            raise _failed(done)
        return json.loads(done.stdout)


def _photon(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["photon", *words, "-o", "json"], capture_output=True, text=True, check=False)


def _failed(done: subprocess.CompletedProcess[str]) -> AirflowException:
    """A retryable failure, unless the command was used wrongly."""
    kind = AirflowFailException if done.returncode == USAGE else AirflowException
    return kind(f"exit code {done.returncode}: {done.stderr.strip()}")
