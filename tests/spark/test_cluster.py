"""A standalone cluster with two workers whose Python does not have Photon: the shipped package runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import HOME, ONE, Cluster, bare_environment, packed, python_without
from tests.spark.test_outputs import slot_with_lines

ROOT = Path(__file__).parents[2]
# Libraries with compiled parts that a cluster for Spark does not have by itself.
SMALL = ("msgspec", "orjson", "xxhash", "zstandard")
DEPLOYMENT = """\
key_file = "key"
[join.clicks]
adapter = "mine.py:Mine"
[join.clicks.options.primary]
format = "jsonl"
key = "q"
[join.clicks.options.foreign]
format = "jsonl"
key = "q"
id = "id"
time = { field = "t", unit = "s" }
[datacentre.east]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "out"
state = "state"
address = "127.0.0.1:1"
"""
# Most tasks run twice; the result is the same.
SPECULATION = (
    "--spark spark.speculation=true --spark spark.speculation.interval=100ms --spark spark.speculation.quantile=0.1 "
    "--spark spark.speculation.multiplier=1.01 --spark spark.speculation.minTaskRuntime=100ms"
)
ADAPTER = """\
from photon.adapters.configured import ConfiguredAdapter
class Mine(ConfiguredAdapter):
    pass
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A deployment with logs and output, and its own adapter."""
    for name, text in (("photon.toml", DEPLOYMENT), ("mine.py", ADAPTER), ("key", "k" * 32)):
        (tmp_path / name).write_text(text)
    for name in ("clicks", "queries"):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"id": f"c{n}", "q": f"q{n}", "t": n, "pad": "x" * 40}) for n in range(200)]
        (tmp_path / name / "a.log").write_text("\n".join(lines) + "\n")
    slot_with_lines(tmp_path)
    return tmp_path / "photon.toml"


def environment(python: Path) -> dict[str, str]:
    """``python``: the executors'."""
    pythons = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    bare = bare_environment()
    options = f"{bare['SPARK_SUBMIT_OPTS']} {ONE}"
    return bare | pythons | {"SPARK_HOME": str(HOME), "SPARK_SUBMIT_OPTS": options}


def test_package_and_adapter_are_shipped_and_libraries_come_as_an_archive(
    cluster: Cluster, deployment: Path, tmp_path: Path
) -> None:
    """A Python that answers on the driver's machine, and does not come up as a worker, is reported before."""
    python = python_without(tmp_path / "venv", SMALL)
    missing = subprocess.run([str(python), "-c", "import orjson"], capture_output=True, check=False)
    assert missing.returncode == 1
    half = tmp_path / "half"
    half.write_text(f'#!/bin/sh\ncase "$*" in *pyspark*) exit 7;; esac\nexec {sys.executable} "$@"\n')
    half.chmod(0o755)
    archive = packed(tmp_path / "libraries.tar.gz", SMALL)
    command = [str(HOME / "bin" / "spark-submit"), "--master", cluster.master, "--archives", f"{archive}#libraries"]
    command += ["--conf", "spark.executorEnv.PYTHONPATH=./libraries", str(ROOT / "tests" / "spark" / "driver.py")]
    done = subprocess.run(
        [*command, str(deployment), str(half), str(python_without(tmp_path / "whole"))],
        env=environment(python), cwd=cluster.directory, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["before"] == [None] * 4  # otherwise this would show nothing
    for origin in said["after"]:
        assert ".zip" in origin
        assert str(ROOT) not in origin
    assert said["clicks"] == sorted(f"c{n}" for n in range(200))
    assert (said["pairs"], said["output"], said["same"]) == (200, 300, True)
    assert said["source"] == sorted(f"e{n}" for n in range(20))
    assert f"Spark's workers run {str(half)!r}, which does not " in said["wrong"]
    assert "on an executor" in said["wrong"]
    assert "set PYSPARK_PYTHON to a Python" in said["wrong"]


def test_the_command_line_runs_as_it_is(cluster: Cluster, deployment: Path, tmp_path: Path) -> None:
    """As in docs/spark.md; it finds an output that is unrelated to the logs."""
    page = (ROOT / "docs" / "spark.md").read_text()
    (script,) = re.findall(r"^spark-submit --master .*__main__.*\n(?:  .*\n)*", page, re.M)
    for said, here in (
        ("spark://host:7077", cluster.master), ("photon.toml", str(deployment)), ("/mnt/shared", str(tmp_path)),
        ("--from 2026-11-20", "--from 1970-01-01T00"), ("--to 2026-11-21", "--to 1970-01-01T01"),
    ):  # fmt: skip
        assert said in script
        script = script.replace(said, here)
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-uc", f"{script.rstrip()} --without-registry {SPECULATION}"],
        env=environment(python_without(tmp_path / "venv")) | path, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr[-6000:]
    report = tmp_path / "reports" / "2026-11-20"
    counts = json.loads((report / "verdict.json").read_bytes())["counts"]
    assert "correct" not in counts
    assert sum(count for name, count in counts.items() if name.startswith("lost")) == 200, counts
    assert (report / "report.html").exists()


def test_without_java_one_line_says_what_to_install(tmp_path: Path) -> None:
    script = "from photon.spark.session import session\nfrom photon.config.errors import PhotonError\n"
    script += "try:\n    session('x')\nexcept PhotonError as e:\n    print(e, e.exit_code)\n"
    environment = dict(os.environ) | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("install Java 17 (for instance openjdk-17-jre-headless) 1")
    assert done.stdout.count("\n") == 1
