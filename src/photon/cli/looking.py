"""How the commands that look ask a deployment, once or again and again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.fleet.asking import Heard


@contextmanager
def asking(
    config: Path, overrides: tuple[str, ...], datacentre: str | None
) -> Iterator[tuple[Settings, list[str], Callable[[], list[Heard]]]]:
    """The settings, the datacentres that are meant (None: all), and what asks all their processes with the operator's
    certificate. Raises UsageError."""
    from photon.config.loader import load
    from photon.config.tls import OPERATOR
    from photon.fleet.access import pipelines_named, tls_of
    from photon.fleet.asking import Asker

    settings = load(config, environment=os.environ, flags=overrides)
    names = pipelines_named(settings, datacentre)
    asker = Asker(settings, names, tls_of(settings, config.parent, OPERATOR), config.parent)
    with asyncio.Runner() as runner:
        try:
            yield settings, names, lambda: runner.run(asker.look(time.monotonic()))
        finally:
            runner.run(asker.close())
