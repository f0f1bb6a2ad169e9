"""Loads the configured adapter: ``configured``, the user's own ``path.py:Class``, or one from an installed package.

Adapters of packages are named by ``entry_points``. A one-file adapter is compiled from its source (no ``__pycache__``
next to the user's file) and becomes the module ``photon_adapter_<file name>``, wherever the file is. A failed load
leaves no module behind. Two files of one name may be loaded in turn; each keeps its own classes.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import API_VERSION, Adapter, AdapterError, Framing
from photon.adapters.entry_points import NAME, adapter_class, checked_class
from photon.adapters.faults import MODULE_PREFIX
from photon.config.settings import CONFIGURED

SOURCE_BYTES_MAX = 4 * 1024 * 1024


def load_adapter(name: str, options: Mapping[str, Any], base: Path) -> Adapter:
    """Returns the adapter ``name`` with its options. Relative paths start at ``base``. Raises AdapterError, one line.

    >>> load_adapter("configured", {"primary": {...}, "foreign": {...}, "where": "join.clicks"}, Path("."))
    """
    if name == CONFIGURED:
        return ConfiguredAdapter({"base": str(base), **options})
    cls = adapter_class_of(name, base)
    file = name.rpartition(":")[0]
    return _made(cls, options, base, Path(inspect.getfile(cls)) if NAME.fullmatch(name) else base / file)


def adapter_class_of(name: str, base: Path) -> type[Adapter]:
    """Loads the class ``path.py:Class`` (below ``base``), or one of an installed package. Raises AdapterError."""
    if NAME.fullmatch(name):
        return adapter_class(name)
    file, colon, class_name = name.rpartition(":")
    if not colon or not file or not class_name.isidentifier():
        todo = 'write "configured", "path.py:Class", or the name of an installed one (photon adapter show)'
        raise AdapterError(f"{name!r} is not an adapter", "adapter", todo)
    path = base / file
    return _adapter_class(_load_module(path), class_name, path)


def _made(cls: type[Adapter], options: Mapping[str, Any], base: Path, path: Path) -> Adapter:
    """Creates an adapter of the class. Errors refer to lines of the file ``path``."""
    class_name = cls.__name__
    try:
        adapter = cls({"base": str(base), **options} if issubclass(cls, ConfiguredAdapter) else options)
    except AdapterError:
        raise
    except Exception as error:
        raise _raised(error, path, f"{class_name} cannot be created with its options") from error
    if adapter.api_version != API_VERSION:
        from photon.config.structured import get_logger  # Spark's workers import this module and do not log

        get_logger(__name__).warning(
            "the adapter is written for an older version of the contract, which a later release will refuse; "
            "docs/adapters.md lists the changes",
            adapter=class_name,
            file=str(path),
            written_for=adapter.api_version,
            now=API_VERSION,
        )
    if not isinstance(getattr(adapter, "options", None), dict):
        raise AdapterError(
            f"{class_name}.__init__ does not call its base class", str(path), "call super().__init__(options) first"
        )
    for name in ("primary_framing", "foreign_framing"):
        if not isinstance(given := getattr(adapter, name), Framing):
            todo = "return a Framing, such as Framing() for lines"
            raise AdapterError(f"{class_name}.{name} is {type(given).__name__}, not a Framing", str(path), todo)
    _check_rule(adapter, class_name, path)
    return adapter


def _check_rule(adapter: Adapter, class_name: str, path: Path) -> None:
    try:
        rule: object = adapter.rule()
    except Exception as error:
        raise _raised(error, path, f"{class_name}.rule failed") from error
    if not isinstance(rule, bytes):
        kind = type(rule).__name__
        raise AdapterError(f"{class_name}.rule returns {kind}, not bytes", str(path), "return canonical bytes")


def _load_module(path: Path) -> ModuleType:
    name = MODULE_PREFIX + re.sub(r"\W", "_", path.stem)
    try:
        with path.open("rb") as file:
            source = file.read(SOURCE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise AdapterError("there is no such file", str(path), "correct the adapter's path") from None
    except OSError as error:
        raise AdapterError(f"cannot be read ({error.strerror})", str(path), "make it readable") from None
    if len(source) > SOURCE_BYTES_MAX:
        raise AdapterError(f"is larger than {SOURCE_BYTES_MAX} bytes", str(path), "an adapter is one Python file")
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise AdapterError(f"syntax error: {error.msg}", where, "correct the file") from None
    except ValueError as error:  # NUL bytes
        raise AdapterError(f"is not Python source ({error})", str(path), "correct the file") from None
    module = ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    # Registered during execution: dataclasses and typed structs look up their module by name.
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if not isinstance(error, Exception | SystemExit):
            raise
        raise _raised(error, path, "cannot be imported") from error
    return module


def _adapter_class(module: ModuleType, name: str, path: Path) -> type[Adapter]:
    cls = vars(module).get(name)
    found = [
        each.__name__
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Adapter) and each.__module__ == module.__name__
    ]
    there = f"use a class of this file: {', '.join(found)}" if found else "write one that derives from Adapter"
    if cls is None:
        raise AdapterError(f"has no class {name}", str(path), there)
    own = inspect.isclass(cls) and issubclass(cls, Adapter) and cls.__module__ == module.__name__
    return checked_class(cls, name, _place_of(cls, path) if own else str(path), there)


def _place_of(cls: type[Adapter], path: Path) -> str:
    linecache.checkcache(str(path))
    try:
        return f"{path}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # a class not defined by a statement in the file
        return str(path)


def _raised(error: BaseException, path: Path, what: str) -> AdapterError:
    """Returns one line for an exception from the adapter's file, with the innermost line of that file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    text = " ".join(str(error).split())[:300]
    return AdapterError(f"{what}: {type(error).__name__}: {text}", where, "correct the adapter")


def code_of(adapter: Adapter) -> str:
    """Identifies an adapter's code as just loaded: package and version or file, class, hash of the module's source.

    Empty for Photon's own.
    """
    kinds = (cls for cls in type(adapter).__mro__ if issubclass(cls, Adapter))
    own = next((cls for cls in kinds if cls.__module__.partition(".")[0] != "photon"), None)
    if own is None:
        return ""
    path, brought = Path(inspect.getfile(own)), set[str]()
    if not own.__module__.startswith(MODULE_PREFIX):
        from importlib.metadata import packages_distributions, version

        top = own.__module__.partition(".")[0]
        brought = {f"{name} {version(name)}" for name in packages_distributions().get(top, ())}
    of = ", ".join(sorted(brought)) or path.name
    return f"{of}: {own.__qualname__} {blake2b(path.read_bytes(), digest_size=6).hexdigest()}"
