"""A separate process that finds the keys of the blocks read by the primary reader."""
