"""The join as a Spark application: a loop that plans, decides, registers, commits and shows one batch after another.

A batch has a number. Its plan is durable before any request is made. Its decisions, results and commit are made once
and never replaced (``journal``), so that repeating it after a crash does the same.
"""
