"""``photon.spark.register`` in a session whose workers' Python is wrong: one line, at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.cluster import python_without
from tests.spark.conftest import require_spark
from tests.spark.test_cluster import ADAPTER, DEPLOYMENT
from tests.spark.test_outputs import slot_with_lines

PROGRAM = """\
import json, sys, time
from pyspark.sql import SparkSession
import photon.spark
from photon.spark.worker_python import WorkerPythonWrong

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
said = []
for python in sys.argv[2:]:
    spark.sparkContext.pythonExec = python or spark.sparkContext.pythonExec
    began = time.monotonic()
    try:
        photon.spark.register(spark)
        said.append(spark.read.format("photon").option("path", sys.argv[1]).load().count())
    except WorkerPythonWrong as wrong:
        said.append(f"{wrong} ({time.monotonic() - began:.0f} s)")
print(json.dumps(said))
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_session_of_ones_own(tmp_path: Path) -> None:
    """The first is the environment's; one that only lacks Photon gets it sent."""
    require_spark()
    slot_with_lines(tmp_path)
    for name, text in (("photon.toml", DEPLOYMENT), ("mine.py", ADAPTER), ("key", "k" * 32)):
        (tmp_path / name).write_text(text)
    bare = script(tmp_path / "bare", f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    without = python_without(tmp_path / "venv")
    environment = os.environ | {"PYSPARK_PYTHON": "python-of-nobody", "SPARK_LOCAL_IP": "127.0.0.1"}
    program = script(tmp_path / "program.py", PROGRAM)
    command = [sys.executable, str(program), str(tmp_path / "photon.toml"), "", str(bare), str(without)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    absent, lacking, count = json.loads(done.stdout.splitlines()[-1])
    assert absent.startswith("Spark's workers run 'python-of-nobody', which is not there: set PYSPARK_PYTHON=")
    assert "which lacks pyarrow, pandas, numpy, msgspec" in lacking
    assert count == 300
    assert all("\n" not in said for said in (absent, lacking))
