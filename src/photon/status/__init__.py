"""Collects the metrics of every process of a pipeline, and serves them as JSON, as a page and for Prometheus."""
