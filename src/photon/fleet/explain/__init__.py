"""What became of one foreign event: evidence from logs, dispatchers, slots and the registry, and the story in it."""
