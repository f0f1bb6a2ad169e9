"""Joins a historic range of the raw logs on Spark, parallel to the live pipeline (docs/spark.md, Backfill): the join
of ``spark/pipeline`` with one plan, over primary records that are looked up in the logs."""
