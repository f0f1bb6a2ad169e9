"""Joins a historic range of the raw logs as a batch on Spark, parallel to the live pipeline (docs/spark.md,
Backfill)."""
