"""Adapters from installed packages: entry points of the group ``photon.adapters``.

A package's pyproject.toml defines them, and a configuration refers to the name (``adapter = "acme-billing"``)::

    [project.entry-points."photon.adapters"]
    acme-billing = "acme_photon.billing:Billing"
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from photon.adapters.contract import API_SPOKEN, API_VERSION, Adapter, AdapterError
from photon.config.settings import CONFIGURED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "photon.adapters"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LISTED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Installed:
    """An entry point. ``fault``: one line that says why it cannot be used; empty if it can."""

    name: str
    target: str  # module:Class
    package: str
    version: str
    summary: str
    fault: str


def _entry_points(name: str | None = None) -> Iterable[EntryPoint]:
    """Returns the group's entry points; with ``name`` only those of that name."""
    from importlib.metadata import entry_points  # this imports mail parsers, which most processes do not need

    return entry_points(group=GROUP) if name is None else entry_points(group=GROUP, name=name)


def installed() -> list[Installed]:
    """Returns every adapter of installed packages, by name. Each is imported to see whether it works."""
    found = []
    for point in sorted(_entry_points(), key=lambda each: (each.name, each.value))[:LISTED_MAX]:
        summary = fault = ""
        try:
            summary = (inspect.getdoc(adapter_class(point.name)) or "").partition("\n")[0]
        except AdapterError as error:
            fault = f"{error.what}; {error.todo}"
        dist = point.dist
        package, version = (dist.name, dist.version) if dist is not None else ("", "")
        found.append(Installed(point.name, point.value, package, version, summary, fault))
    return found


def adapter_class(name: str) -> type[Adapter]:
    """Loads the class that an entry point names. Raises AdapterError."""
    points = sorted(_entry_points(name), key=lambda each: each.value)
    if not points:
        known = ", ".join(sorted({each.name for each in _entry_points()})[:20]) or "none"
        todo = f'write "configured", "path.py:Class" or the name of an installed one ({known}; photon adapter show)'
        raise AdapterError(f"{name!r} is not an adapter", "adapter", todo)
    where = f"adapter {name}"
    if name == CONFIGURED:
        packages = " and ".join(map(_package, points))
        raise AdapterError(
            f'{packages} registers an adapter under the reserved name "configured"', where, "rename its entry point"
        )
    if len({point.value for point in points}) > 1:
        targets = " and ".join(f"{point.value} ({_package(point)})" for point in points)
        raise AdapterError(f"is in several packages: {targets}", where, "uninstall all but one")
    point = points[0]
    try:
        cls: object = point.load()
    except (Exception, SystemExit) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        todo = f"correct or upgrade {_package(point)}"
        raise AdapterError(f"{point.value} cannot be imported ({text})", where, todo) from error
    return checked_class(cls, point.value, where)


def check_configured() -> None:
    """Raises AdapterError if an installed package registers an adapter under the reserved name ``configured``."""
    if any(_entry_points(CONFIGURED)):
        adapter_class(CONFIGURED)


def checked_class(
    cls: object, name: str, where: str, there: str = "write one that derives from Adapter"
) -> type[Adapter]:
    """Returns ``cls`` if it is an adapter of this contract that can be instantiated. Raises AdapterError."""
    if not inspect.isclass(cls) or not issubclass(cls, Adapter):
        raise AdapterError(f"{name} is not a subclass of photon.adapters.contract.Adapter", where, there)
    written: object = cls.api_version
    if type(written) is not int or written not in API_SPOKEN:
        newer = type(written) is int and written > API_VERSION
        todo = "install a newer Photon" if newer else "follow docs/adapters.md (Versions of the contract)"
        raise AdapterError(
            f"{name} is written for contract version {written!r}; this Photon has {API_VERSION}", where, todo
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise AdapterError(f"{name} does not define {missing}", where, "add the missing parts")
    return cls


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
