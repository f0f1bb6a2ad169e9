"""Slots as an operator sees them: what the registry knows, what lies on this machine's disk, and retiring."""
