"""Imports of libraries without what they take in when it happens to be installed, and we have no use for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def left_out(*packages: str) -> Iterator[None]:
    """Meanwhile these cannot be imported, unless they have been. For import statements at the top of a module.

    Its imports are most of what a process of ours does in its first half second, and ``photon join`` starts five.
    """
    absent = [package for package in packages if package not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))  # None: ImportError, says the language reference
    try:
        yield
    finally:
        for package in absent:
            del sys.modules[package]
