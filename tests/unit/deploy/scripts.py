"""The scripts of deploy/, which are no package, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

DEPLOY = Path(__file__).parents[3] / "deploy"


def script(name: str) -> ModuleType:
    """As it imports its neighbours where it is run."""
    sys.path.insert(0, str(DEPLOY))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DEPLOY))
