"""A process's inputs and environment: settings, clock, back-off, logging."""
