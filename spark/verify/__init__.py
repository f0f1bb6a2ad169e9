"""Nightly verification: compares inputs, outputs and registry of all datacentres with a fresh join (paper, 3.3.3)."""
