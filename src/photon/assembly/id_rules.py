"""The adapter of a configured join, and the rule it derives ids by."""

from __future__ import annotations

from hashlib import blake2b

from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of, join_named
from photon.idregistry.api import Digester

__all__ = ["adapter_of", "join_named", "rule_hash"]


def rule_hash(adapter: Adapter, digester: Digester) -> bytes:
    """What the registry keeps of the rule that derives digest, key and time: another one is refused at start."""
    return blake2b(digester.fingerprint() + adapter.rule(), digest_size=16).digest()
