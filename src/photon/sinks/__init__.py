"""Sinks: write published records in another form to another place, each record once."""
