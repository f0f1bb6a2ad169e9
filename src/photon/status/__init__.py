"""The status of a pipeline: asks every process for its metrics, and shows them as JSON, a page and for Prometheus."""
