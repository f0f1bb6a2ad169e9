"""All components of one pipeline wired together on one machine."""
