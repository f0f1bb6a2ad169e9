"""Batches in columns: the form in which Photon's parts exchange events and records, in memory or on the wire."""
