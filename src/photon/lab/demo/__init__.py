"""The demo: a generated live stream, real processes, kills, and the check against the generator's truth."""
