"""Batches in columns: the shapes in which rooms hand one another events and records, in memory and on the wire."""
