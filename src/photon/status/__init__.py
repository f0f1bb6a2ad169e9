"""Collects the metrics of every process of a pipeline, and serves them as JSON, on a page and for Prometheus."""
