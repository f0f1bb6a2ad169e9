"""The outside world breaks its word."""
