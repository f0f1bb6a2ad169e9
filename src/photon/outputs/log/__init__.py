"""The published log: the output files of one slot, and their readable lengths."""
