"""The main program of a zygote: ``python -m photon.supervision.zygote_main DESCRIPTOR MODULE…``. See zygote.py."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

import msgspec
import setproctitle

from photon.adapters.crumbs import ENDED
from photon.supervision.zygote import MESSAGE_BYTES, Reply, Request

DESCRIPTORS = 2


def serve(requests: socket.socket) -> list[str] | None:
    """Forks copies on request until the supervisor is gone, then returns `None`. In a copy, returns the arguments to
    run with."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, DESCRIPTORS)
        if not data:
            return None
        try:
            asked = msgspec.json.decode(data, type=Request)
            pid = fork_for_another()
            if pid == 0:
                requests.close()
                if asked.ended:
                    os.environ[ENDED] = asked.ended
                _take_up(asked.arguments, *descriptors)
                return asked.arguments
            reply = Reply(pid)
        except (OSError, msgspec.DecodeError) as error:
            reply = Reply(problem=str(error))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        requests.send(msgspec.json.encode(reply))


def fork_for_another() -> int:
    """Forks a copy whose parent becomes this process's subreaper. Returns its pid; 0 in the copy. Raises OSError."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        with contextlib.suppress(OSError):
            pid = os.fork()
            if pid == 0:
                os.close(read)
                os.close(write)
                return 0
            os.write(write, b"%d" % pid)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as told:
        pid = int(told.read() or 0)
    os.waitpid(between, 0)  # now the copy is an orphan, so the subreaper adopts it
    if pid == 0:
        raise OSError("cannot create more processes")
    return pid


def _take_up(arguments: Sequence[str], lifeline: int, log: int) -> None:
    """Gives this copy the session, standard input and outputs, and process title of its command."""
    os.setsid()
    for descriptor, number in ((lifeline, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    setproctitle.setproctitle(" ".join(("photon", *arguments)))


def run(module: str) -> NoReturn:
    """Runs a module like ``python -m``, then ends the process without freeing imported objects, as multiprocessing
    does. Freeing them would take as long as the start, and write to shared pages."""
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ends:
        match ends.code:
            case int() | None as number:
                code = number or 0
            case text:
                sys.stderr.write(f"{text}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for written in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # the reader is gone
                written.flush()
        os._exit(code)


def become(requests: socket.socket) -> NoReturn:
    """Makes this forked copy of a supervisor its zygote. If anything fails, exits without the supervisor's
    clean-up."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        os.close(nowhere)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        setproctitle.setproctitle("photon zygote")
        gc.freeze()
        _serve_on(requests)
    finally:
        os._exit(0)


def _serve_on(requests: socket.socket) -> None:
    """Forks copies until the supervisor is gone. In a copy, runs its command and does not return."""
    with requests:
        arguments = serve(requests)
    if arguments is not None:
        sys.argv = ["photon", *arguments]
        run("photon")


def main() -> None:
    setproctitle.setproctitle("photon zygote")
    gc.disable()  # imported objects stay, so collecting would be in vain
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # copies share these pages while the collector leaves them alone
    gc.enable()
    _serve_on(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
