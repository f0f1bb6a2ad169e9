"""Calls a function in a separate process, so that its loops, crashes and imports do not affect this one."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE
from importlib import import_module
from typing import Any

from photon.config.errors import PhotonError

_CODE = "from photon.config.own_process import _answer; _answer()"
LEFT_S = 1.0  # extra time before the kernel ends a process whose caller is gone


async def in_own_process(function: str, *arguments: object, timeout_s: float) -> Any:
    """Calls ``function`` (MODULE:NAME, possibly a coroutine function) and returns its result; values are pickled.

    Raises the function's PhotonError, a PhotonError if the process ends without an answer, or TimeoutError.
    """
    # -P: modules of the working directory must not shadow ours
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", _CODE, stdin=PIPE, stdout=PIPE)
    try:
        async with asyncio.timeout(timeout_s):
            answer, _ = await process.communicate(pickle.dumps((function, arguments, timeout_s)))
    finally:
        if process.returncode is None:
            process.kill()
        code = await process.wait()
    if code or not answer:
        how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
        raise PhotonError(f"the process that ran it ended without an answer: {how}")
    problem, value = pickle.loads(answer)
    if problem is not None:
        raise PhotonError(problem)
    return value


def _answer() -> None:
    replies, sys.stdout = os.fdopen(os.dup(1), "wb"), sys.stderr
    os.dup2(2, 1)  # user code may print
    function, arguments, timeout_s = pickle.load(sys.stdin.buffer)
    signal.setitimer(signal.ITIMER_REAL, timeout_s + LEFT_S)
    module, _, name = function.partition(":")
    found: tuple[str | None, object]
    try:
        value = getattr(import_module(module), name)(*arguments)
        found = None, asyncio.run(value) if inspect.iscoroutine(value) else value
    except PhotonError as error:
        found = str(error), None
    replies.write(pickle.dumps(found))
    replies.flush()
    os._exit(0)  # a thread of user code must not keep the process
