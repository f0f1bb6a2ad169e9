"""The keys of the blocks that the primary reader reads: found in its thread, or by a process beside it."""
