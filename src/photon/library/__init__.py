"""Photon in another program: run a join or a whole deployment, read what it writes exactly once.

``docs/embedding.md`` has examples.

These names follow semantic versioning.
"""

from photon.config.extras import ExtraMissing
from photon.library.deployment import Deployment, DeploymentFailed, ProcessState
from photon.library.join import Join, JoinEnded, JoinStopped
from photon.library.output import Batch, Output
from photon.library.records import Record, Records
from photon.outputs import CursorLost, PublishedDamaged
from photon.outputs.arrow_columns import LineUnreadable
from photon.outputs.content import OutputMissing

__all__ = [
    "Batch",
    "CursorLost",
    "Deployment",
    "DeploymentFailed",
    "ExtraMissing",
    "Join",
    "JoinEnded",
    "JoinStopped",
    "LineUnreadable",
    "Output",
    "OutputMissing",
    "ProcessState",
    "PublishedDamaged",
    "Record",
    "Records",
]
