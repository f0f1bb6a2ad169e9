"""Imports libraries without their optional dependencies, which we do not use even if they are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def left_out(*packages: str) -> Iterator[None]:
    """Within this context, imports of these packages fail, unless already imported. For imports at a module's top.

    Imports take most of a process's first half second.
    """
    absent = [package for package in packages if package not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))  # ``None`` causes ImportError (language reference)
    try:
        yield
    finally:
        for package in absent:
            del sys.modules[package]
