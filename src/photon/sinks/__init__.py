"""Sinks: published records in another form and place, each record once."""
