"""Photon joins two endless logs exactly once across all datacentres, within seconds.

Based on the paper "Photon: Fault-tolerant and Scalable Joining of Continuous Data Streams" (SIGMOD 2013).

``photon.join`` joins two log directories, ``photon.read`` reads joined records (``docs/embedding.md``). Names defined
here are imported at first use; ``__init__.pyi`` has the types. ``docs/architecture.md`` walks one event
through the rooms of this package.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = [
    "Join",
    "JoinStopped",
    "Output",
    "Pairs",
    "PhotonError",
    "Record",
    "Records",
    "UsageError",
    "__version__",
    "compute",
    "join",
    "read",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'photon' has no attribute {name!r}")
    if name == "compute":
        return import_module("photon.library.compute")
    front = "library.front" if name in ("Pairs", "join", "read") else "library"
    room = "config.errors" if name.endswith("Error") else front
    return getattr(import_module(f"photon.{room}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
