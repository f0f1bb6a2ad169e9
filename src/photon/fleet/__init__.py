"""A deployment as a whole: its processes, the connections to them, and their reports."""
