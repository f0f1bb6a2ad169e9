"""Runs computations over joined records, as in MillWheel: state per key, timers on low watermarks, each record
exactly once.

This module exports the user's API; ``docs/computations.md`` (Inside) explains how it works.
"""

from photon.computing.model import (
    HOUR_NS,
    MINUTE_NS,
    SECOND_NS,
    Computation,
    Context,
    Record,
    Timer,
    hours,
    minutes,
    seconds,
)
from photon.computing.topology import Limits, Topology

__all__ = [
    "HOUR_NS",
    "MINUTE_NS",
    "SECOND_NS",
    "Computation",
    "Context",
    "Limits",
    "Record",
    "Timer",
    "Topology",
    "hours",
    "minutes",
    "seconds",
]
