"""What operators do to a deployment, beyond starting and asking it."""
