"""Rereads foreign logs: for a time range an operator requests, and for ids that the registry gave up."""
