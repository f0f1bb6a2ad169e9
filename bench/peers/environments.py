"""Virtual environments of the peers, created on first use.

Packages have separate environments, because Flink's Python package needs other versions of many libraries than the
rest.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.workload import cache_root

INSTALL_S = 1800.0


@dataclass(frozen=True, slots=True)
class Environment:
    """Packages that one or several peers need."""

    name: str
    packages: tuple[str, ...]

    def directory(self) -> Path:
        """Directory of this set of packages for this Python."""
        told = "\n".join((sys.version, *self.packages)).encode()
        return cache_root() / "environments" / f"{self.name}-{hashlib.sha256(told).hexdigest()[:12]}"

    def python(self) -> Path:
        """Returns the path of the interpreter; first installs missing packages. Raises Unavailable."""
        directory = self.directory()
        done = directory / "installed"
        if not done.exists():
            print(f"  installing {', '.join(self.packages)} ...", file=sys.stderr, flush=True)
            shutil.rmtree(directory, ignore_errors=True)
            try:
                _run([sys.executable, "-m", "venv", str(directory)])
                pip = [
                    str(directory / "bin" / "python"),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ]
                _run([*pip, *self.packages])
            except Unavailable:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            done.touch()
        return directory / "bin" / "python"

    def versions(self) -> dict[str, str]:
        """Versions of the pinned packages."""
        return dict(package.split("==", 1) for package in self.packages if "==" in package)


class Unavailable(Exception):
    """A peer is unavailable here; the message says why in one line."""


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise Unavailable(f"could not be installed: {failed}") from failed
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise Unavailable(f"could not be installed: {lines[-1] if lines else f'pip ended with {done.returncode}'}")


PLAIN = Environment("plain", ("orjson==3.13.0",))
TABLES = Environment("tables", ("duckdb==2.0.0", "polars==2.1.0"))
SPARK = Environment("spark", ("pyspark==4.3.0",))
FLINK = Environment("flink", ("apache-flink==2.3.0",))
BYTEWAX = Environment("bytewax", ("bytewax==0.21.1", "orjson==3.13.0"))
PATHWAY = Environment("pathway", ("pathway==0.33.0",))
