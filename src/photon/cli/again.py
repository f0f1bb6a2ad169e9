"""Commands that show something again and again: Ctrl-C is how a person ends them, and no failure."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

T = TypeVar("T")


def again(show: Callable[[], T], every_s: float) -> T | None:
    """Until Ctrl-C or SIGTERM, or until nobody reads it any more. What it showed last; None: nothing."""
    shown: T | None = None
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        try:
            while True:
                begun = time.monotonic()
                shown = show()
                time.sleep(max(every_s - (time.monotonic() - begun), 0.1))
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:  # what it is piped into has ended
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return shown
