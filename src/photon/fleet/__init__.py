"""A deployment as a whole: its processes, how to reach them, and what they report."""
