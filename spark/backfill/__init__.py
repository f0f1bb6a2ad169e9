"""A historic range of the raw logs joined as a batch on Spark, beside the live pipeline (docs/spark.md, Backfill)."""
