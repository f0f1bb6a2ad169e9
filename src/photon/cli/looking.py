"""How the commands that look ask a deployment, once or again and again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from photon.cli.heads import Deployed
    from photon.fleet.polling import Heard

T = TypeVar("T")


@contextmanager
def asking(at: Deployed) -> Iterator[tuple[list[str], Callable[[], list[Heard]]]]:
    """The datacentres that are meant (all, if none is named), and what asks all their processes with the operator's
    certificate. Raises UsageError."""
    from photon.fleet.access import pipelines_named
    from photon.fleet.polling import Asker

    names = pipelines_named(at.settings, at.datacentre)
    asker = Asker(at.settings, names, at.tls, at.base)
    with asyncio.Runner() as runner:
        try:
            yield names, lambda: runner.run(asker.look(time.monotonic()))
        finally:
            runner.run(asker.close())


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
