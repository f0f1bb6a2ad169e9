"""Finds the active Spark session for Photon's jobs, or makes one with suitable settings."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.errors import PhotonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS_A_CORE = 2  # Shuffle partitions for each core of a local session; adaptive execution joins small ones.
PARTITIONS_MIN = 4
SAID_CHARS_MAX = 400
FULL = "No space left on device"
# Messages of Spark, Java and cluster managers if a process ran out of memory, or was killed for its usage
NO_MEMORY = ("OutOfMemoryError", "MemoryError", "exited with code 52", "exited with code 137", "exit code 137",
             "exceeding physical memory")  # fmt: skip
MORE_MEMORY = (
    "give it more with --spark spark.executor.memory=4g, or with a local master --spark spark.driver.memory=4g"
)
DIED = f"the Java process of Spark has ended, most often because it ran out of memory: {MORE_MEMORY}"
SHUT_DOWN = "SparkContext was shut down"
WRITTEN = re.compile(rf"while writing rows to file:(.+?)\. SQLSTATE|{FULL}: '(.+)'")
OS_ERROR = re.compile(r"[A-Za-z]*Error: \[Errno \d+\] (.+)")
# Loggers of failed tasks: if one fails permanently, its error is raised and reported in one line.
QUIET = (
    "executor.Executor",
    "scheduler.TaskSetManager",
    "sql.execution.datasources.FileFormatWriter",
    "storage.DiskBlockObjectWriter",
    "util.SparkUncaughtExceptionHandler",
    "util.Utils",
)
LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
""" + "".join(
    f"logger.quiet{n}.name = org.apache.spark.{name}\nlogger.quiet{n}.level = off\n" for n, name in enumerate(QUIET)
)
# Settings of jobs that pass few events through Java: its optimising compiler costs more CPU time than it saves. A
# join of a million events takes 18 s of Java in place of 42, their backfill 32 in place of 63.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LEAN = {"spark.driver.extraJavaOptions": _QUICK, "spark.executor.extraJavaOptions": _QUICK}
# Defaults of a session made here
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    # A frame that Python makes from a list of tasks is as small as that list to Spark's planner, which would then
    # send millions of records to every executor. Joins are small if we say so, or a finished shuffle shows it.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Ten thousand rows, the only default, would be too many if each has all primary records of its key.
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.parquet.compression.codec": "zstd",
    # Spark would record where in Python each expression was written: which is useless to operators, and slow.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Settings also applied to an existing session, as our results depend on them
RUNTIME = (
    "spark.sql.session.timeZone",
    "spark.sql.adaptive.enabled",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.adaptive.autoBroadcastJoinThreshold",
    "spark.sql.execution.arrow.pyspark.enabled",
)


PYTHON = "spark.pyspark.python"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PANDAS_3 = "PySpark does not yet fully support pandas >= 3.0.0"  # a warning about unused features


class SparkMissing(PhotonError):
    """Spark cannot be started here."""


def session(app: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the active session, or makes one at ``master`` (default: the one in ``settings``, spark-submit's, or
    ``local[*]``). Its executors can run Photon's code. ``settings``: Spark's settings. Raises SparkMissing, and
    WorkerPythonWrong if the executors' Python cannot run it."""
    check_present()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from photon.spark.shipping import ship
    from photon.spark.worker_python import check

    master = master or (settings or {}).get("spark.master")
    active = SparkSession.getActiveSession()
    if active is not None:
        for name in RUNTIME:
            active.conf.set(name, SETTINGS[name])
        ship(active)
        return active
    warnings.filterwarnings("ignore", message=PANDAS_3)
    if python := (settings or {}).get(PYTHON):  # Spark reads the setting in spark-submit alone
        os.environ["PYSPARK_PYTHON"] = python
    elif (master or _submitted().get("spark.master", "local[*]")).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # instead of the default, any "python3"
    with tempfile.TemporaryDirectory(prefix="photon-spark-") as directory:
        builder = SparkSession.builder.appName(app)
        for name, value in _wanted(master, settings or {}, Path(directory)).items():
            builder = builder.config(name, value)
        try:
            made = builder.getOrCreate()
        except (PySparkException, RuntimeError, OSError) as error:
            raise SparkMissing(f"Spark does not start: {' '.join(str(error).split())[:300]}") from None
    made.sparkContext.setLogLevel("ERROR")
    ship(made, everywhere=bool(python) and not check(made))
    return made


def has_ended(spark: SparkSession) -> bool:
    """True if the session was stopped, or its Java process has ended."""
    try:
        return spark.sparkContext._jsc is None or bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:  # what py4j raises once Java is gone
        return True


def said_by_spark(error: Exception) -> str | None:
    """Describes an error raised through Spark in one line: a full disk, too little memory, a file, an error of Photon
    or of Spark. ``None`` means that the error is not from Spark."""
    try:
        lines = [line.strip() for line in str(error).splitlines()]  # str() calls Java
    except OSError:
        return DIED
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return DIED
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        # Every other file has a name: pyspark, running in our process, does not name its own.
        nameless = isinstance(error, OSError) and error.errno == ENOSPC and error.filename is None
        return _full(lines) if nameless else None
    if any(FULL in line for line in lines):
        return _full(lines)
    if any(SHUT_DOWN in line for line in lines):
        return DIED
    if any(word in line for line in lines for word in NO_MEMORY):
        return f"a process of Spark ran out of memory: {MORE_MEMORY}"
    ours = [line for line in lines if line.startswith("photon.")]
    ours += [found[1] for line in lines if (found := OS_ERROR.fullmatch(line))]
    raised = [line for line in lines if "SparkException" in line or "Error:" in line]
    raised += [line for line in lines if line.startswith("Caused by: ")]
    return " ".join((ours or raised or lines or ["Spark failed"])[0].split())[:SAID_CHARS_MAX]


def _full(lines: Sequence[str]) -> str:
    """Tells which disk is full, by the file named in the error of Spark or of a task."""
    named = next((found[1] or found[2] for line in lines if (found := WRITTEN.search(line))), None)
    if named is None:
        return (
            f"{FULL} in spark.local.dir: free some space, or name another directory with --spark spark.local.dir=DIR"
        )
    return f"{named}: {FULL}; free some space"


def check_present() -> None:
    """Raises SparkMissing unless pyspark (with pyarrow) and Java are installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissing(f"{', '.join(missing)}: not installed; pip install 'photon-join[spark]'")
    if os.environ.get("SPARK_REMOTE"):
        raise SparkMissing("SPARK_REMOTE is set: Spark Connect is not supported; unset it and name a master")
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME = {home}" if home else "java"
        raise SparkMissing(f"{where}: no Java found; install Java 17 (for instance openjdk-17-jre-headless)")


def _wanted(master: str | None, settings: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Returns the settings of a new session: spark-submit's override our defaults, ``settings`` override both."""
    submitted = _submitted()
    defaults = SETTINGS | _local_defaults(master, submitted)
    wanted = {name: value for name, value in defaults.items() if name not in submitted} | dict(settings)
    if master is not None:
        wanted["spark.master"] = master
    elif "spark.master" not in submitted and "spark.master" not in wanted:
        wanted["spark.master"] = "local[*]"
    if not _is_submitted():  # the Java process is not started yet
        file = directory / "log4j2.properties"
        file.write_text(LOG4J)
        quiet = f"-Dlog4j2.configurationFile={file.as_uri()}"
        wanted[JAVA_OPTIONS] = f"{wanted.get(JAVA_OPTIONS, '')} {quiet}".strip()
    return wanted


def _is_submitted() -> bool:
    """True if Spark's Java process is already running, started by spark-submit or an earlier session of this
    process."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def _submitted() -> Mapping[str, str]:
    """Returns the settings given by spark-submit, or by a surrounding Spark."""
    from pyspark import SparkConf, SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        return dict(context.getConf().getAll())
    if not _is_submitted():
        return {}
    SparkContext._ensure_initialized()  # otherwise SparkConf does not know the Java process and its settings
    return dict(SparkConf().getAll())


def _local_defaults(master: str | None, submitted: Mapping[str, str]) -> dict[str, str]:
    master = master or submitted.get("spark.master", "local[*]")
    if not master.startswith("local"):
        return {}
    partitions = max(PARTITIONS_A_CORE * _cores(master), PARTITIONS_MIN)
    # Results of more than 1 MiB are fetched from the driver's own address: it must listen there.
    here = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return {"spark.sql.shuffle.partitions": str(partitions), **here}


def _cores(master: str) -> int:
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdigit() else len(os.sched_getaffinity(0))
