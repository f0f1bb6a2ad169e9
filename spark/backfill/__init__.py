"""Joins a past time range of the raw logs on Spark, in parallel with the live pipeline (docs/spark.md, Backfill).
Uses the join of ``spark/pipeline``, but finds primary records in the logs instead of an event store."""
