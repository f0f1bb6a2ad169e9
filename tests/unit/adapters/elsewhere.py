"""The testkit's other process as a copy of one that has imported what it needs, a tenth of the CPU time of a new one.
Its hashes are those of the seed with which that one was begun; what acts later is set in the copy."""

from __future__ import annotations

import functools
import importlib
import io
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from typing import NoReturn

import msgspec

from photon.adapters.testkit import other_process

MODULES = ("hypothesis", "photon.adapters.side", "pytest")
"""On top of the testkit: what the tests' own adapters import."""


def run(
    command: list[str], *, input: bytes, cwd: str, env: Mapping[str, str], timeout: float, **_: object
) -> subprocess.CompletedProcess[bytes]:
    """As subprocess.run."""
    server = _server(env["PYTHONHASHSEED"])
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(msgspec.json.encode((cwd, dict(env), input.decode())) + b"\n")
    server.stdin.flush()
    code, out, errors = msgspec.json.decode(server.stdout.readline(), type=tuple[int, str, str])
    return subprocess.CompletedProcess(command, code, out.encode(), errors.encode())


@functools.cache
def _server(seed: str) -> subprocess.Popen[bytes]:
    """It ends with this process."""
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C", "PYTHONPATH": path}
    command = [sys.executable, "-m", __name__]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def main() -> None:
    for module in MODULES:
        importlib.import_module(module)
    while request := sys.stdin.buffer.readline():
        cwd, environment, task = msgspec.json.decode(request, type=tuple[str, dict[str, str], str])
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            if (pid := os.fork()) == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                _become(cwd, environment, task.encode())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said = [os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0).decode() for each in (out, errors)]
        sys.stdout.buffer.write(msgspec.json.encode((code, *said)) + b"\n")
        sys.stdout.buffer.flush()


def _become(cwd: str, environment: dict[str, str], task: bytes) -> NoReturn:
    code = 1
    try:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        sys.path[:] = [cwd, *environment["PYTHONPATH"].split(os.pathsep)]
        sys.stdin = io.TextIOWrapper(io.BytesIO(task))
        other_process.main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
