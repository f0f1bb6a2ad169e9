"""The joiner: looks up, adapts, registers and writes events (paper, section 3.3); see docs/architecture.md."""
