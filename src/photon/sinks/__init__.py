"""Sinks: what is published, in another form and place, each record once."""
