"""What a process is told from outside: settings, clock, back-off, logging."""
