"""Runs ``photon join`` in a child process if it has a user's adapter. If a record kills a child, its crumbs tell
which one, and the next child skips it. Without such an adapter nothing is forked."""

from __future__ import annotations

import atexit
import concurrent.futures.thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from photon.adapters.crumbs import died_in_user_code, ended_words, predecessor, runs_user_code
from photon.config.stopping import at_own_end
from photon.config.words import many

# Maximum number of deaths before the join is given up; a record causes two, so half as many records are allowed.
DEATHS_MAX = 50
THREADS_S = 1.0  # seconds to wait for an adapter's threads to end
_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def is_user_code(config: Path | None, overrides: Sequence[str]) -> bool:
    """Returns True if a join in the configuration has a user's adapter. Returns False for an unreadable file, which
    the command itself reports."""
    if any(".adapter=" in each for each in overrides):
        return True
    try:
        joins = {} if config is None else tomllib.loads(config.read_text()).get("join", {})
        return any(each.get("adapter", "configured") != "configured" for each in joins.values())
    except (OSError, ValueError, AttributeError):
        return False


def in_a_child(crumbs: Path, say: Callable[[str], None]) -> int | None:
    """Forks. Returns `None` in the child, which does the work. In this process, returns the exit code when the work
    is done.

    If user code kills a child, another one is forked; if anything else kills it, this process ends in the same
    way.
    """
    own, ended = os.getpid(), ""
    for _ in range(DEATHS_MAX):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _begin(own, write, ended)
            return None
        os.close(write)
        code = _code_of(child)
        os.set_blocking(read, False)
        with contextlib.suppress(BlockingIOError):
            if os.read(read, 1):
                return code if code >= 0 else _as_it_ended(code)
        os.close(read)
        if code < 0 and not died_in_user_code(crumbs):
            return _as_it_ended(code)
        ended = ended_words(code)
        if not died_in_user_code(crumbs):
            say(f"code that is not Photon's ended the process too early ({ended}); fix the adapter")
            return 2
        say(f"the adapter's code killed the process ({ended}); it is restarted and continues")
    say(f"the adapter's code killed the process {DEATHS_MAX} times; fix the adapter and run this again")
    return 1


def end(code: int, say: Callable[[str], None]) -> int:
    """Returns ``code``. If an adapter has left threads running, which would keep the process alive, exits with
    ``code`` instead. Without user code, all threads are Photon's own and are waited for."""
    if not runs_user_code():
        return code
    until = time.monotonic() + THREADS_S
    left = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    left = [each for each in left if each not in concurrent.futures.thread._threads_queues]
    for each in left:
        each.join(max(0.0, until - time.monotonic()))
    if names := sorted(each.name for each in left if each.is_alive()):
        counted = many(len(names), "thread")
        say(f"the adapter left {counted} running ({', '.join(names[:3])}); they are not waited for")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for tell in at_own_end:
            tell()
        os._exit(code)
    return code


def _begin(parent: int, write: int, ended: str) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent has already been killed
        os._exit(1)
    os.setpgid(0, 0)  # Ctrl-C reaches the parent, which forwards it
    for number in _FORWARDED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    predecessor(ended)
    own = os.getpid()

    def done() -> None:
        if os.getpid() == own:  # not in a forked process
            os.write(write, b".")

    at_own_end[:] = [done]
    atexit.register(done)


def _code_of(child: int) -> int:
    """Waits until the child ends, forwarding signals to it. Returns its exit code."""

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    return os.waitstatus_to_exitcode(status)


def _as_it_ended(code: int) -> int:
    """Ends this process with the signal that ended the child."""
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 1
