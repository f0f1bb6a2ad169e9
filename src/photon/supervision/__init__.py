"""Runs the processes of a deployment on one machine: starts, watches, restarts and ends them."""
