"""Tells what became of one foreign event: evidence from logs, dispatchers, slots and registry, put into a story."""
