"""The dispatcher: reads foreign logs, sends events to joiners, retries; at-least-once (paper, section 3.2)."""
