"""How each kind of process is put together from the settings."""
