"""Nightly verification: inputs, outputs and registry of all datacentres against a fresh join (paper, 3.3.3)."""
