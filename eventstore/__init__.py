"""The EventStore: key -> primary event (paper, section 3.4)."""
