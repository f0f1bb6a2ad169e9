"""Fault injection: applies a plan of faults to a running deployment, heals them, and verifies the results."""
