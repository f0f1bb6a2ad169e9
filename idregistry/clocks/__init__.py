"""Replicas watch each other's clocks: who is too far from the others proposes nothing that depends on the time."""
