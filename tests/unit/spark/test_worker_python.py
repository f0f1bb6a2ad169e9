"""The message for a Python that cannot run Photon on Spark's workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from photon.spark.worker_python import _probed, failure, fault, refusal

HERE = ".".join(map(str, sys.version_info[:2]))


def test_versions_and_libraries() -> None:
    assert fault(sys.version_info[:2], []) is None
    assert fault(sys.version_info[:2], ["photon"]) is None  # it is sent
    assert fault(sys.version_info[:2], ["pyarrow", "photon"]) == "lacks pyarrow"
    assert fault((3, 4), []) == f"is Python 3.4, but this program runs Python {HERE}"


def test_one_line_says_what_to_set() -> None:
    said = refusal("python3", "is not there", local=True)
    assert said.startswith("Spark's workers run 'python3', which is not there: set PYSPARK_PYTHON=" + sys.executable)
    assert "spark.pyspark.python" in said
    assert f"a Python {HERE}" in refusal("/x/python", "lacks pyarrow", local=False)
    assert "\n" not in said


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_this_python_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _probed(sys.executable) == ([], None)
    assert _probed("no-such-python")[1] == "is not there"
    assert _probed(script(tmp_path / "mute", "exit 1"))[1] == "is not a working Python"
    other = script(tmp_path / "old", 'echo "[[3, 4], []]"')
    assert _probed(other)[1] == f"is Python 3.4, but this program runs Python {HERE}"
    bare = script(tmp_path / "bare", f'exec {sys.executable} -I -S "$@"')
    assert (_probed(bare)[1] or "").startswith("lacks pyarrow, pandas, numpy")
    monkeypatch.setattr("photon.spark.worker_python.PROBE_S", 0.2)
    assert _probed(script(tmp_path / "slow", "exec sleep 9"))[1] == "does not answer within 0.2 s"


def test_what_an_executor_said_is_one_line() -> None:
    said = "photon.adapters.contract.AdapterError: a.py: there is no such file; correct it"
    lacking = RuntimeError(f"Job aborted\nModuleNotFoundError: No module named 'fastavro'\n\nThe above\n{said}\n")
    assert str(failure(lacking)).startswith("Spark's executors lack the Python module 'fastavro': install it")
    assert failure(RuntimeError(f"Traceback\n{said}\n x")) == (
        "on an executor of Spark: a.py: there is no such file; correct it"
    )
    assert failure(RuntimeError("Traceback\nTypeError: of ours\n")) is None
