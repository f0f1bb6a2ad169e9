"""Computations over what is published, after MillWheel."""
