"""What a report is a report of: a hash over the deployment, as far as a finding depends on it. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from photon.config.settings import Settings
from photon.idregistry.api import Digester


def fingerprint(settings: Settings, key: bytes) -> str:
    """32 hex digits over the joins, the key, and which datacentre reads and writes where.

    Processes may come and go, ids may be resharded: a report stays good. With another one of these it does not.
    """
    joins = {name: msgspec.to_builtins(join, enc_hook=float) for name, join in sorted(settings.join.items())}
    places = {
        name: [pipeline.join, pipeline.primary, pipeline.foreign, pipeline.output, pipeline.state]
        for name, pipeline in sorted(settings.datacentre.items())
    }
    keys = {name: Digester(key, name).fingerprint().hex() for name in joins}
    data = msgspec.json.encode([joins, places, keys], order="deterministic")
    return blake2b(data, digest_size=16).hexdigest()
