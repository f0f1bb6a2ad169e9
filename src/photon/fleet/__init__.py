"""A deployment as a whole: which processes it has, how they are reached, and what they say."""
