"""The continuous verifier: reads the durable part of the outputs and clears tokens (protocol rule 8)."""
