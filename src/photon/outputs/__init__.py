"""Reading what joiners have published: which files there are, how far each may be read, and what a line says."""
