"""Calls user code under a watchdog, and reports its exceptions in one line."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from typing import Protocol

from photon.adapters.containment import Hung
from photon.adapters.faults import printed
from photon.computing.errors import Misused
from photon.computing.model import Computation


def failed() -> tuple[type[BaseException], ...]:
    """Returns the exceptions of user code that only end the call: all, including SystemExit, except a
    KeyboardInterrupt from Ctrl-C. (``photon compute`` handles that signal itself.)"""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return (Exception, Hung, SystemExit, GeneratorExit)
    return (BaseException,)


class Guard(Protocol):
    """Ends a call that does not return by raising ``Hung`` in it (``photon.adapters.containment``)."""

    count: int  # increases with each call

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> object: ...


Guards = Callable[[Computation], Guard]


class Unguarded:
    """Calls user code without a time limit, for tests."""

    def __init__(self, computation: Computation) -> None:
        self.count = 0

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def reason_of(error: BaseException, computation: Computation, guard: Guard) -> str:
    """Returns one line with the error and the innermost line of the user's code."""
    if isinstance(error, Hung):
        return f"it did not return within {computation.time_limit_s:g} s{getattr(guard, 'where', '')}"
    home = type(computation).__module__.partition(".")[0]
    frames = list(traceback.walk_tb(error.__traceback__))
    packages = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in frames]
    ours = home == "photon"  # then include the functions passed to ``photon.computing.windows``
    own = [at for at, package in zip(frames, packages, strict=True) if (package == home) is not ours]
    where = "".join(f" ({frame.f_code.co_filename}:{line})" for frame, line in own[-1:])
    what = printed(error) if isinstance(error, Misused) else f"{type(error).__name__}: {printed(error)}"
    line = f"{what}{where}".replace("\n", " ")
    return line.encode("utf-8", "backslashreplace").decode()  # lone surrogates cannot be stored
