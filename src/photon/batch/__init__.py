"""Batches in columns: the form in which rooms exchange events and records, in memory and on the wire."""
