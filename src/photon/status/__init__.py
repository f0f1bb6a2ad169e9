"""The status of a pipeline: collects metrics from every process, and serves them as JSON, a page and for
Prometheus."""
