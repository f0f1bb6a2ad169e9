"""Loads a user's Python file into our process; its exceptions become one line with their place."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from photon.config.errors import PhotonError, UsageError


def load_python(file: Path, prefix: str) -> ModuleType:
    """Runs the file as a module, not as the main program, with its directory on ``sys.path`` as for ``python FILE``.

    ``prefix`` starts the module's name, because the file may be named like a package. Raises UsageError, or the
    file's own PhotonError unchanged.
    """
    if not file.is_file():
        raise UsageError(f"{file}: no such file; name a Python file")
    path = str(file.resolve())
    name = f"{prefix}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: is not a Python file; name one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and others look up their module
    if (directory := str(Path(path).parent)) not in sys.path:
        sys.path.insert(0, directory)
    try:
        spec.loader.exec_module(module)
    except PhotonError:
        raise
    except (Exception, SystemExit) as error:
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == path]
        if isinstance(error, SyntaxError) and error.filename == path:
            lines = [error.lineno]
        at = f":{lines[-1]}" if lines else ""
        raise UsageError(f"{file}{at}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    return module
