"""Builds each kind of process from the settings."""
