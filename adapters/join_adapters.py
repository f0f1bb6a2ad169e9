"""The adapter of a configured join."""

from __future__ import annotations

from pathlib import Path

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.contract import Adapter
from photon.adapters.loader import CONFIGURED, load_adapter
from photon.adapters.shaping import shaped_adapter
from photon.config.errors import UsageError
from photon.config.settings import Join, Settings


def join_named(settings: Settings, name: str | None) -> str:
    """The join that a command means: the one it names, or the only one there is."""
    known = ", ".join(sorted(settings.join)) or "none"
    if name is None:
        if len(settings.join) != 1:
            raise UsageError(f"the configuration has {len(settings.join)} joins ({known}); name one with --join")
        return next(iter(settings.join))
    if name not in settings.join:
        raise UsageError(f"join {name!r}: not in the configuration; there are: {known}")
    return name


def adapter_of(settings: Settings, name: str, base: Path) -> Adapter:
    """Loads a join's adapter; paths are relative to ``base``. Raises AdapterError."""
    adapter = adapter_of_join(settings.join[name], name, base)
    adapter.time_limit_s = float(settings.limits.adapter_timeout)
    return adapter


def adapter_of_join(join: Join, name: str, base: Path) -> Adapter:
    """Loads the adapter of the join ``name``; paths are relative to ``base``. Raises AdapterError."""
    if join.adapter is not None:
        adapter = load_adapter(join.adapter, join.options, base)
    else:
        options = {"primary": join.primary, "foreign": join.foreign, "where": f"join.{name}"}
        adapter = load_adapter(CONFIGURED, options, base)
    if join.within is not None:
        bounds = Bounds(round(join.within.before * 1e9), round(join.within.after * 1e9))
        adapter = bounded_adapter(adapter, bounds, f"join.{name}")
    return adapter if join.shape is None else shaped_adapter(adapter, join.shape, f"join.{name}.shape", base)
