"""The join as a Spark application: a loop over batches, each planned, decided, registered, committed and shown.

A batch has a number. Its plan is durable before any request is made. Its decisions, results and commit are made once
and never replaced (``journal``), so that a repetition after a crash does the same.
"""
