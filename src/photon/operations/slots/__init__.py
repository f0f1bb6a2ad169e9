"""Slots as an operator sees them: the registry's knowledge, the files on this machine's disk, and retiring."""
