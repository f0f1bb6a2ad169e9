"""Operators' actions on a deployment, beyond starting and querying it."""
