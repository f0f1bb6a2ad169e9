"""``photon`` commands as copies of a process that has imported them: a tenth of the CPU time of a fresh interpreter.

A test process makes one such server at its first command. To the test a copy is a process like any other (signals,
exit code, pipes, environment, working directory); only its parent is the server. Variables that act before the first
import (LD_PRELOAD, PYTHON…) need a fresh interpreter, and get one; ``FIRST`` does not, for what acts later.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

import setproctitle

import photon.cli.main  # noqa: F401 (before gRPC, which it tells to be silent)
from photon.supervision import detached, zygote
from photon.supervision.zygote_main import run

MESSAGE_BYTES = 128 << 10
DESCRIPTORS = 5
FOURTH = 3  # the number under which a copy has an additional descriptor
BEGIN_S = 60.0
# Imported in addition to the services' modules: slow imports that commands and services need at first use.
MODULES = (
    *(f"photon.cli.{path.stem}" for path in sorted((Path(__file__).parents[2] / "src/photon/cli").glob("[a-z]*.py"))),
    *(f"photon.cli.registry.{name}" for name in ("backup", "replace", "reshard", "restore", "status")),
    "encodings.idna",  # of an address, when a connection is opened
    "photon.assembly.observe",
    "photon.config.certificate_files",
    "photon.config.metrics.prometheus",
    "photon.dispatcher.skipping",
    "photon.fleet.here",
    "photon.fleet.explain.inquiry",
    "photon.fleet.explain.story",
    "photon.fleet.hbase",
    "photon.lab.chaos.command",
    "photon.lab.wan.service",
    "photon.library",
    "photon.local_join.join",
    "photon.local_join.parts",
    "photon.operations.register",
    "photon.operations.slots.operating",
    "photon.status.process",
    "photon.supervision.up",
    "photon.tables",
    "rich._emoji_codes",
)
FRESH = ("LD_", "PYTHON")  # variables with these prefixes act before anything is imported
FIRST = "PHOTON_TEST_FIRST"  # a variable: the Python file that a copy runs first. Its own copies inherit the effects.
BEGUN = dict(os.environ)  # initial environment of the copied process

Target = int | IO[Any] | None


# CPU time of ended copies and the processes they waited for, which are not children of this process.
ended_cpu_s: list[float] = []


class Copy:
    """Like subprocess.Popen, as far as tests use it."""

    def __init__(self, args: Sequence[str], pid: int, said: socket.socket, pipes: Sequence[IO[Any] | None]) -> None:
        self.args, self.pid, self._said = args, pid, said
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = pipes

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._said.settimeout(timeout)
            try:
                data = self._said.recv(MESSAGE_BYTES)
            except (BlockingIOError, TimeoutError):
                return None
            self._said.close()
            assert data, f"the server of {self.args} is gone"
            code, cpu_s = data.split()
            self.returncode = int(code)
            ended_cpu_s.append(float(cpu_s))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Its pipe output, once it has ended. TimeoutExpired carries the standard output so far, and the rest comes
        with the next call."""
        if not hasattr(self, "_read"):
            self._read: list[list[Any]] = [[], []]
            self._readers = [
                threading.Thread(target=_drain, args=(pipe, into), daemon=True)
                for pipe, into in zip((self.stdout, self.stderr), self._read, strict=True)
                if pipe is not None
            ]
            for reader in self._readers:
                reader.start()
            if self.stdin is not None:
                self.stdin.close()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired as error:
            error.output = _joined(self.stdout, self._read[0]) or None
            raise
        for reader in self._readers:
            reader.join()
        return _joined(self.stdout, self._read[0]), _joined(self.stderr, self._read[1])


def _joined(pipe: IO[Any] | None, parts: list[Any]) -> Any:
    return None if pipe is None else ("" if hasattr(pipe, "encoding") else b"").join(parts)


def _drain(pipe: IO[Any], into: list[Any]) -> None:
    with pipe:
        while data := pipe.readline():
            into.append(data)


Process = Copy | subprocess.Popen[Any]


def begin(
    *arguments: str | Path,
    module: str = "photon",
    stdin: Target = subprocess.DEVNULL,
    stdout: Target = None,
    stderr: Target = None,
    text: bool = False,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> Process:
    """Runs ``python -m MODULE ARGUMENTS``; other parameters as in subprocess.Popen."""
    words = [str(each) for each in arguments]
    environment = dict(os.environ if env is None else env)
    if any(environment.get(name) != BEGUN.get(name) for name in environment | BEGUN if name.startswith(FRESH)):
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=stdin, stdout=stdout, stderr=stderr, text=text, cwd=cwd, env=env,
            start_new_session=start_new_session,
        )  # fmt: skip
    theirs, ours = _descriptors((stdin, stdout, stderr), text)
    request = {"cwd": str(cwd or os.getcwd()), "env": environment, "session": start_new_session}
    try:
        return _copy({"module": module, "arguments": words, **request}, theirs, ours)
    finally:
        for descriptor in theirs:
            os.close(descriptor)


def _popen(command: Sequence[str], **more: Any) -> Process:
    return begin(*command[3:], module=command[2], **more)


# Replaces the module in Photon code that starts ``python -m photon``.
SUBPROCESS = SimpleNamespace(
    Popen=_popen, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
)


@contextlib.contextmanager
def zygotes() -> Iterator[None]:
    """While it lasts, zygotes made by this process are copies, too."""

    def make(command: Sequence[str], *, pass_fds: Sequence[int], **_: object) -> Copy:
        request = {"cwd": os.getcwd(), "env": dict(os.environ), "session": True}
        with open(os.devnull, "r+b") as null:
            module, _number, *modules = command[2:]
            request |= {"module": module, "arguments": [str(FOURTH), *modules]}
            return _copy(request, [null.fileno()] * 3, [None] * 3, *pass_fds)

    zygote.subprocess = SimpleNamespace(Popen=make, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    try:
        yield
    finally:
        zygote.subprocess = subprocess


def _copy(request: dict[str, Any], theirs: Sequence[int], ours: Sequence[IO[Any] | None], *more: int) -> Copy:
    said, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tells:
        socket.send_fds(_server(), [json.dumps(request).encode()], [*theirs, tells.fileno(), *more])
    said.settimeout(BEGIN_S)
    answer = said.recv(MESSAGE_BYTES)
    assert answer.isdigit(), f"photon {request['arguments']}: {answer!r}"
    return Copy(request["arguments"], int(answer), said, ours)


def _descriptors(targets: Sequence[Target], text: bool) -> tuple[list[int], list[IO[Any] | None]]:
    """A copy's descriptors 0, 1 and 2, to be closed here, and our ends of the pipes among them."""
    theirs: list[int] = []
    ours: list[IO[Any] | None] = []
    for number, target in enumerate(targets):
        mode, pipe = ("w" if number == 0 else "r") + ("" if text else "b"), None
        if target == subprocess.PIPE:
            read, write = os.pipe()
            mine = write if number == 0 else read
            pipe = open(mine, mode) if text or number else open(mine, mode, buffering=0)  # noqa: SIM115
            theirs.append(read if number == 0 else write)
        elif target == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
        elif target == subprocess.STDOUT:
            theirs.append(os.dup(theirs[1]))
        elif target is None:
            theirs.append(os.dup(number))
        else:
            theirs.append(os.dup(target if isinstance(target, int) else target.fileno()))
        ours.append(pipe)
    return theirs, ours


def on_path(environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """The environment of a shell whose ``photon`` is a copy, too, and a descriptor to pass to it."""
    server = _server().fileno()
    path = f"{Path(__file__).parent / 'copies'}:{environment['PATH']}"
    return {**environment, "PATH": path, "PHOTON_TEST_COPIES": str(server)}, server


@functools.cache
def _server() -> socket.socket:
    """This test process's server, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        root = Path(__file__).parents[2]
        process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# -- the server ------------------------------------------------------------------------------------------------------
def main() -> None:
    """Makes copies until the test process is gone, and reports how each ends."""
    setproctitle.setproctitle("photon copies for tests")  # it looks up its place once, before variables change
    gc.disable()
    for module in (*zygote.ALL, *MODULES):
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    become = _serve(socket.socket(fileno=int(sys.argv[1])))
    if become is not None:
        become()


def _serve(requests: socket.socket) -> Callable[[], None] | None:
    """Returns ``None`` once the requests end, and in a copy its task."""
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is requests:
                    data, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, DESCRIPTORS)
                    if not data:
                        return None
                    pid = os.fork()
                    if pid == 0:
                        return functools.partial(_become, json.loads(data), descriptors)
                    tells = socket.socket(fileno=descriptors.pop(3))
                    for descriptor in descriptors:
                        os.close(descriptor)
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, tells))
                    _tell(tells, str(pid))
                else:
                    pid, tells = key.data
                    _, status, used = os.wait4(pid, 0)
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    _tell(tells, f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}")
                    tells.close()


def _tell(tells: socket.socket, what: str) -> None:
    with contextlib.suppress(OSError):  # no more requests
        tells.send(what.encode())


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    if request["session"]:
        os.setsid()
    wanted = [os.dup(each) for each in (*descriptors[:3], *descriptors[4:])]  # none of them has a low number then
    for number, descriptor in enumerate(wanted):
        os.dup2(descriptor, number)
    os.closerange(len(wanted), 1 << 16)
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]  # as python -m has it
    for name in os.environ.keys() - request["env"].keys():
        if not name.startswith("GRPC_"):  # which the command sets at its import
            del os.environ[name]
    os.environ.update(request["env"])
    sys.argv = [request["module"], *request["arguments"]]
    if FIRST in request["env"]:
        runpy.run_path(request["env"][FIRST])
    for module in (zygote, detached):
        module.subprocess = SimpleNamespace(Popen=_Child, DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE)  # type: ignore[attr-defined]
    run(request["module"])


class _Child:
    """A copy's own ``python -m MODULE ARGUMENTS`` (zygote, background processes, owners of keys), also made as a
    copy: it need not import anything. Supports the parts of subprocess.Popen that they use."""

    stdin = None  # a pipe to it ends with this process

    def __init__(
        self, command: Sequence[str], *, stdin: Target = subprocess.DEVNULL, stdout: Target = None,
        stderr: Target = None, pass_fds: Sequence[int] = (), start_new_session: bool = False, **_: object,
    ) -> None:  # fmt: skip
        for written in (sys.stdout, sys.stderr):
            written.flush()
        theirs, self._ours = _descriptors((stdin, stdout, stderr), text=False)
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            for descriptor in theirs:
                os.close(descriptor)
            return
        for number, descriptor in enumerate(theirs):
            os.dup2(descriptor, number)
        first = 3
        for descriptor in (*sorted(pass_fds), 1 << 16):
            os.closerange(first, descriptor)
            first = descriptor + 1
        if start_new_session:
            os.setsid()
        module, *arguments = command[2:]
        sys.argv = [module, *arguments]
        run(module)

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self) -> int | None:
        return self._ended(0)

    def _ended(self, how: int) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode


if __name__ == "__main__":
    main()
