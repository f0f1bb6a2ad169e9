"""The published log: the output files of one slot, and how far they may be read."""
