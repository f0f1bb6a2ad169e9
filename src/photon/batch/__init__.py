"""Batches in columns, in which Photon's parts exchange events and records in memory and on the wire."""
