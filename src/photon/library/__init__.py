"""Photon in another program: run a join, read what it writes exactly once. ``docs/embedding.md`` has an example.

These names follow semantic versioning.
"""

from photon.library.join import Join, JoinEnded, JoinStopped
from photon.library.output import Batch, Output

__all__ = ["Batch", "Join", "JoinEnded", "JoinStopped", "Output"]
