"""Runs a deployment's processes on one machine: starts, watches, restarts and stops them."""
