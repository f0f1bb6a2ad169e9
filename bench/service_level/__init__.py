"""Behaviour of the service as a whole over days and under overload: ``python -m bench.service_level``."""
