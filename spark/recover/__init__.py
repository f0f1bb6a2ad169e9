"""Repair: gives events that a verification found lost back to the dispatchers, by compare with the exported entry."""
