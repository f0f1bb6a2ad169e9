"""What a deployment sends to a real OpenTelemetry collector."""
