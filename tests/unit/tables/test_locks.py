"""Advisory locks among threads and processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from photon.tables.locks import FileLocks

HOLDS = """
import sys
from photon.tables.locks import FileLocks
locks = FileLocks(sys.argv[1])
print(locks.acquire("one"), flush=True)
sys.stdin.read()
"""


def test_what_another_process_holds_is_free_once_that_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "locks"
    locks = FileLocks(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not locks.acquire("one")
        assert locks.acquire("two")
        assert not locks.acquire("two")
        locks.release("two")
        assert locks.acquire("two")
        other.kill()
        other.wait(30)
    assert locks.acquire("one")
