"""The join as a Spark application: a loop over batches, each planned, decided, registered, committed and shown.

A batch is a number. Its plan is durable before anything is asked; its decisions, its results and its commit are made
once and never replaced (``journal``), so that a repetition after a crash does the same.
"""
