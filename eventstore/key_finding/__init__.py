"""A process of its own that finds the keys of the blocks that the primary reader reads."""
