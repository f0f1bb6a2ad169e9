"""A historic range of the raw logs joined as a batch on Spark, parallel to the live pipeline (docs/spark.md,
Backfill)."""
