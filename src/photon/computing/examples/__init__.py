"""Computations to read and to run: docs/computations.md."""
