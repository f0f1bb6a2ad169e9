"""A PostgreSQL server for the tests, as Debian installs it: below its own directory, on a free port of 127.0.0.1.

The server refuses to run as root; then it runs as the user nobody.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from photon.supervision.ports import free_ports
from tests.integration.commands import until

USER = "photon"
START_S = 60.0


def programs() -> Path | None:
    """The directory of the newest release's programs; ``None`` means that PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    releases = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return releases[-1].parent if releases else None


class Postgres:
    """One server, which may be killed and restarted."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix="photon-postgres-"))
        self.port = free_ports(1)[0]
        self.address = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        self._as: dict[str, Any] = (
            {"user": "nobody", "group": "nogroup", "extra_groups": []} if not os.getuid() else {}
        )
        self._process: subprocess.Popen[bytes] | None = None
        if self._as:
            shutil.chown(self.directory, "nobody", "nogroup")
        self._data = self.directory / "data"
        subprocess.run(
            [programs / "initdb", "-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            check=True, stdout=subprocess.DEVNULL, cwd=self.directory, **self._as,
        )  # fmt: skip

    def start(self) -> None:
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-p", str(self.port), "-k", self.directory,
                 "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB", "-c", "max_connections=20"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, **self._as,
            )  # fmt: skip
        until(self.answers, START_S, "PostgreSQL answers")

    def answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.address, connect_timeout=2):
            return True
        return False

    def kill(self) -> None:
        """kill -9 of the server and of all its processes."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGKILL)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        psutil.wait_procs(children, timeout=10)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.address) as connection:
            return connection.execute(query).fetchall()

    def do(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.address) as connection:
            for each in statements:
                connection.execute(each)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            if self._process.poll() is None:
                self.kill()
        for _ in range(50):
            shutil.rmtree(self.directory, ignore_errors=True)
            if not self.directory.exists():
                return
            time.sleep(0.1)
