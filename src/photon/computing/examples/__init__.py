"""Example computations: docs/computations.md."""
