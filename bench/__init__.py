"""Benchmarks of Photon as a whole, next to other systems on the same sets: ``make bench``, ``make bench-full``."""
