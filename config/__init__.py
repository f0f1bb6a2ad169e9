"""What a process gets from outside: settings, clock, back-off, logging."""
