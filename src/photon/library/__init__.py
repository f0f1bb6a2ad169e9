"""Photon as a library: run a join in another program, and read its output exactly once.

``docs/embedding.md`` has examples.

The names exported here follow semantic versioning.
"""

from photon.config.extras import ExtraMissing
from photon.library.join import Join, JoinEnded, JoinStopped
from photon.library.output import Batch, Output
from photon.library.records import Record, Records
from photon.outputs import CursorLost, PublishedDamaged
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.content import OutputMissing

__all__ = [
    "Batch",
    "CursorLost",
    "ExtraMissing",
    "Join",
    "JoinEnded",
    "JoinStopped",
    "LineUnreadable",
    "Output",
    "OutputMissing",
    "PublishedDamaged",
    "Record",
    "Records",
]
