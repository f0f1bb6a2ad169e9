"""Checks, before the first query, whether Spark's Python workers can run Photon. The query itself would fail late,
with "Python worker failed to connect back"."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from photon.config.errors import PhotonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARIES = ("pyarrow", "pandas", "numpy", "msgspec", "orjson", "xxhash", "zstandard")
OURS = "photon"
PROBE_S = 20.0
EXECUTORS_S = 60.0  # seconds to wait for an answer; executors without one count as busy or slow
PROBE = (
    "import json, sys\nfrom importlib.util import find_spec\n"
    "print(json.dumps([list(sys.version_info[:2]), [name for name in sys.argv[1:] if find_spec(name) is None]]))\n"
)
_SAID = re.compile(
    r"Cannot run program [^\n]*|\[PYTHON_VERSION_MISMATCH\][^\n]*|ModuleNotFoundError: [^\n]*|Python worker [^\n]*"
)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_REFUSED = re.compile(r"^photon(?:\.\w+)+: ([^\n]+)", re.MULTILINE)
SAID_CHARS_MAX = 200
_has: dict[tuple[str, str], bool] = {}  # application and Python -> whether it has Photon


class WorkerPythonWrong(PhotonError):
    """Spark's workers run a Python that cannot run Photon. The message is one line with the setting to change."""


def check(spark: SparkSession) -> bool:
    """True if Photon is installed in the workers' Python; if not, it must be shipped. Raises WorkerPythonWrong.

    It checks this machine, where Spark plans sources, and for a session that is not local also an executor, if one
    answers within ``EXECUTORS_S``.
    """
    context = spark.sparkContext
    python = context.pythonExec
    asked = context.applicationId, python
    if asked in _has:
        return _has[asked]
    local = (context.master or "local").startswith("local")
    missing, why = _probed(python)
    if why is None and not local:
        why = _on_executors(spark)
    if why is not None:
        raise WorkerPythonWrong(refusal(python, why, local=local))
    return _has.setdefault(asked, OURS not in missing)


def refusal(python: str, why: str, *, local: bool) -> str:
    """Describes in one line the problem and the setting to change."""
    own = ".".join(map(str, sys.version_info[:2]))
    todo = f"set PYSPARK_PYTHON={sys.executable}"
    if not local:
        todo = f"set PYSPARK_PYTHON to a Python {own} with its packages, at the same path here and on every executor"
    return (
        f"Spark's workers run {python!r}, which {why}: {todo} before the session is made "
        "(with spark-submit: --conf spark.pyspark.python=…)"
    )


def fault(version: Sequence[int], missing: Sequence[str]) -> str | None:
    """Returns why this Python cannot run this driver's Photon code; ``None`` if it can."""
    if tuple(version) != sys.version_info[:2]:
        here, there = (".".join(map(str, each)) for each in (sys.version_info[:2], version))
        return f"is Python {there}, but this program runs Python {here}"
    lacking = [name for name in missing if name != OURS]
    return f"lacks {', '.join(lacking)}" if lacking else None


def failure(error: Exception) -> str | None:
    """Extracts from Spark's error the message of Photon's code on an executor, in one line; ``None`` if there is
    none."""
    text = str(error)
    if missing := _MISSING.search(text):
        return (
            f"Spark's executors lack the Python module {missing[1]!r}: install it in their Python, or send it "
            "in an archive (docs/spark.md, Shipping)"
        )
    said = _REFUSED.findall(text)
    return f"on an executor of Spark: {said[-1]}" if said else None


def _probed(python: str) -> tuple[list[str], str | None]:
    """Returns the missing libraries, and why this Python cannot run Photon."""
    if shutil.which(python) is None:
        return [], "is not there"
    command = [python, "-c", PROBE, *LIBRARIES, OURS]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_S)
        version, missing = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return [], f"does not answer within {PROBE_S:g} s"
    except (OSError, ValueError, IndexError):
        return [], "is not a working Python"
    return missing, fault(version, missing)


def _on_executors(spark: SparkSession) -> str | None:
    """Returns why an executor's Python cannot run Photon; ``None`` if it can, or has not answered yet."""
    from pyspark.util import InheritableThread

    context, group = spark.sparkContext, f"photon-python-{id(spark)}"

    # Sent as source text: executors may lack the Photon package
    def facts(names: Iterable[Sequence[str]]) -> list[Any]:
        import sys as there
        from importlib.util import find_spec

        return [(list(there.version_info[:2]), [name for some in names for name in some if find_spec(name) is None])]

    found: list[Any] = []

    def ask() -> None:
        context.setJobGroup(group, "photon checks the workers' Python", interruptOnCancel=True)
        try:
            found.extend(context.parallelize([LIBRARIES], 1).mapPartitions(facts).collect())
        except Exception as error:  # all kinds of worker failures arrive through Java
            found.append(str(error))

    thread = InheritableThread(target=ask, name="photon-python", daemon=True)
    thread.start()
    thread.join(EXECUTORS_S)
    if not found:
        failed = _failed(spark, group)
        context.cancelJobGroup(group)
        return f"does not start on an executor within {EXECUTORS_S:g} s" if failed else None
    (answer,) = found
    if isinstance(answer, str):
        said = _SAID.search(answer)
        why = " ".join((said[0] if said else answer.strip().splitlines()[0]).split())[:SAID_CHARS_MAX]
        return f"does not run on an executor ({why})"
    return fault(*answer)


def _failed(spark: SparkSession, group: str) -> bool:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return any(stage is not None and stage.numFailedTasks for stage in stages)


__all__ = ["WorkerPythonWrong", "check", "failure", "fault", "refusal"]
