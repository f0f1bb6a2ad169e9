"""Keys of several parts, and lists of keys: one value that refers to several primary events. Pure.

Parts and members are joined by ``|``; in each, ``~`` is written as ``~0`` and ``|`` as ``~1`` (like JSON Pointer
escapes), so no two lists have the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from photon.adapters.contract import Adapter, BadRecord

KEYS_MAX = 1000  # keys that one event may name
SEPARATOR, ESCAPE = b"|", b"~"


def joined(values: Iterable[bytes]) -> bytes:
    return SEPARATOR.join([each.replace(b"~", b"~0").replace(b"|", b"~1") for each in values])


def list_of_keys(keys: Iterable[bytes]) -> bytes:
    """Combines the keys of one event into a single key, each once, in this order. Raises BadRecord."""
    named = dict.fromkeys(filter(None, keys))
    if not 0 < len(named) <= KEYS_MAX:
        raise BadRecord(f"names {f'more than {KEYS_MAX:,} keys' if named else 'no key'}")
    return joined(named)


def keys_in(key: bytes) -> list[bytes]:
    """Splits a key made by ``list_of_keys``."""
    members = key.split(SEPARATOR)
    return [each.replace(b"~1", b"|").replace(b"~0", b"~") for each in members] if ESCAPE in key else members


def keys_named(adapter: Adapter, key: bytes) -> Sequence[bytes]:
    """Returns the keys of the primary events that a foreign event with this key refers to."""
    return keys_in(key) if adapter.several_keys else (key,)


def names(adapter: Adapter, key: bytes, primary: object) -> bool:
    """True if a foreign event with ``key`` refers to the primary event with the key ``primary``."""
    return primary in keys_in(key) if adapter.several_keys else primary == key
