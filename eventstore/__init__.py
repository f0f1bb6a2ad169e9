"""The event store: finds the primary event with a key (paper, section 3.4)."""
