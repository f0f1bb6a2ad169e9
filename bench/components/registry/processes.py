"""One replica of the registry as a process, and what the system says of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from photon.supervision.ports import free_ports


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process."""

    rss: int
    cpu_s: float


@dataclass(slots=True)
class Replica:
    """A process of its own, alone in its group."""

    directory: Path
    shards: int = 1
    address: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Seconds until it serves."""
        self.address = self.address or f"127.0.0.1:{free_ports(1)[0]}"
        given = {"name": "r0", "peers": {"r0": self.address}, "directory": str(self.directory), "shards": self.shards}
        began = time.perf_counter()
        self.process = spawn(given)
        wait_ready(self.process)
        return time.perf_counter() - began

    def usage(self) -> Usage:
        assert self.process is not None
        return usage(self.process.pid)

    def stop(self) -> None:
        """Kills it: what it acknowledged is on its disk."""
        if self.process is not None:
            end(self.process)
            self.process = None


def spawn(settings: dict[str, object]) -> subprocess.Popen[str]:
    """A replica that says ``ready`` on its standard output."""
    command = [sys.executable, "-m", "tests.integration.registry_replica", json.dumps(settings)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Reads its output up to ``ready``."""
    assert process.stdout is not None
    if "ready\n" not in process.stdout:
        raise RuntimeError("a registry replica did not start")


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def usage(pid: int) -> Usage:
    """Resident bytes, and CPU seconds so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return Usage(rss, (int(fields[11]) + int(fields[12])) / 100)
