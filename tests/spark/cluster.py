"""A real Spark standalone cluster: a master and two workers as separate processes, from the pyspark package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from photon.supervision.ports import free_ports

START_S = 600.0
HOME = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))
HOST = "127.0.0.1"
# Kept environment variables: none that tells where Photon is.
KEPT = (
    "PATH",
    "JAVA_HOME",
    "HOME",
    "LANG",
    "TMPDIR",
    "SPARK_HOME",
    *(f"SPARK_{each}_OPTS" for each in ("SUBMIT", "DAEMON_JAVA", "LAUNCHER")),
)
WORKERS = 2
ONE = "-Dspark.cores.max=1"  # executor: each costs a Java process; other tests run on both


def bare_environment() -> dict[str, str]:
    """Environment for processes that must not know of this Photon."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return kept | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """``master``: its address, for Spark."""

    master: str
    directory: Path


@contextmanager
def running(directory: Path) -> Iterator[Cluster]:
    """Stops its processes at the end, by their ids."""
    port, web, *others = free_ports(2 + 2 * WORKERS)
    master = f"spark://{HOST}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    common = ("--host", HOST)
    try:
        started.append(
            _start(directory, "master", "master.Master", *common, "--port", str(port), "--webui-port", str(web))
        )
        for number in range(WORKERS):
            ports = ("--port", str(others[2 * number]), "--webui-port", str(others[2 * number + 1]))
            work = ("--work-dir", str(directory / f"work-{number}"), "--cores", "1", "--memory", "1g")
            name = f"worker-{number}"
            started.append(_start(directory, name, "worker.Worker", *common, *ports, *work, master))
        _wait(f"http://{HOST}:{web}/json/", directory)
        yield Cluster(master, directory)
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def _start(directory: Path, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    environment = bare_environment() | {"SPARK_HOME": str(HOME)}
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=directory)


def _wait(url: str, directory: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if json.load(answer)["aliveworkers"] == WORKERS:
                    return
        except (OSError, ValueError):
            pass
        time.sleep(0.1)
    said = "\n".join(path.read_text()[-2000:] for path in sorted(directory.glob("*.log")))
    raise AssertionError(f"the cluster did not start within {START_S} s:\n{said}")


# -- the executors' Python -----------------------------------------------------------------------------------------
def python_without(directory: Path, left_out: Collection[str] = ()) -> Path:
    """A Python with the libraries of this one, except Photon and those left out."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    here, there = _site(Path(sys.prefix)), _site(directory)
    for entry in here.iterdir():
        name = entry.name.lower()
        photon = name.lstrip("_").startswith("photon") or name.endswith(".pth")
        if not photon and not any(name.split("-")[0] == each for each in left_out):
            (there / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


def packed(archive: Path, names: Collection[str]) -> Path:
    """Some libraries of this Python as an archive for ``spark.archives``."""
    with tarfile.open(archive, "w:gz") as out:
        for entry in sorted(_site(Path(sys.prefix)).iterdir()):
            if entry.name.split("-")[0].lower() in names:
                out.add(entry, entry.name)
    return archive


def _site(prefix: Path) -> Path:
    return prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
