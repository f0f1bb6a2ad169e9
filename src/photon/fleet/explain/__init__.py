"""Finds out what became of one foreign event: gathers evidence from logs, dispatchers, slots and registry, and tells
it as a story."""
