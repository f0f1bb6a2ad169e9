"""The adapter of a configured join."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from photon.adapters.contract import Adapter
from photon.adapters.loader import CONFIGURED, load_adapter
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.idregistry.api import Digester


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
    join = settings.join[name]
    if join.adapter is not None:
        return load_adapter(join.adapter, join.options, base)
    options = {"primary": join.primary, "foreign": join.foreign, "where": f"join.{name}"}
    return load_adapter(CONFIGURED, options, base)


def rule_hash(adapter: Adapter, digester: Digester) -> bytes:
    """What the registry keeps of the rule that derives digest, key and time: another one is refused at start."""
    return blake2b(digester.fingerprint() + adapter.rule(), digest_size=16).digest()
