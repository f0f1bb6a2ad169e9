"""A program's file with observers, loaded by somebody else's process."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from photon.config.errors import PhotonError, UsageError
from photon.tables.tables import Tables


def tables_of(file: Path) -> list[Tables]:
    """Runs the file as a module, not as the main program; the ``Tables`` that stand in it by a name. Raises
    UsageError, one line with the place, where it fails."""
    name = f"photon_observers_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: is no Python file; name one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.absolute().parent))  # as python FILE does
    try:
        spec.loader.exec_module(module)
    except PhotonError:
        raise
    except (Exception, SystemExit) as error:
        lines = [
            each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(file.absolute())
        ]
        at = f":{lines[-1]}" if lines else ""
        raise UsageError(f"{file}{at}: {type(error).__name__}: {error}") from error
    found: list[Tables] = []
    for each in vars(module).values():
        if isinstance(each, Tables) and each not in found:
            found.append(each)
    return found
