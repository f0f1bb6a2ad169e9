"""Photon joins two endless logs exactly once over all datacentres, within seconds.

After "Photon: Fault-tolerant and Scalable Joining of Continuous Data Streams" (SIGMOD 2013).
``docs/architecture.md`` walks one event through the rooms of this package.
"""

__version__ = "0.1.0"
