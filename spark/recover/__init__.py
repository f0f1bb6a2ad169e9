"""Repair: what a verification found lost goes back to the dispatchers, by compare on exactly the exported entry."""
