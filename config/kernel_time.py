"""Reads the kernel's own estimate of its clock's error, with adjtimex(2). Linux only."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from photon.config.interval_clock import KernelTime

STA_UNSYNC = 0x40  # no daemon disciplines the clock, or it has lost its sources
_TIME_ERROR = 5  # returned by adjtimex while the clock is not synchronised
_NS_PER_US = 1000


class _Timex(ctypes.Structure):
    """The part of 64-bit Linux's ``struct timex`` that is read; ``rest`` is longer than the remaining fields."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),  # microseconds
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def kernel_time() -> KernelTime | None:
    """Asks the kernel. ``None`` if that is impossible: on another system, or in a container that forbids it."""
    adjtimex = _adjtimex()
    if adjtimex is None:
        return None
    said = _Timex()  # modes = 0: changes nothing
    state = adjtimex(ctypes.byref(said))
    if state < 0:
        return None
    synchronised = state != _TIME_ERROR and not said.status & STA_UNSYNC
    return KernelTime(synchronised=synchronised, max_error_ns=max(said.maxerror, 0) * _NS_PER_US)


@functools.cache
def _adjtimex() -> Any:
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    try:
        return ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None
