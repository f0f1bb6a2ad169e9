"""The joiner: look up, adapt, register, write (paper, section 3.3); see docs/architecture.md."""
