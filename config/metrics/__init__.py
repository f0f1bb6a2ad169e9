"""A process's report: samples of its metrics, and details for the status page.

All values are read from existing counters at the moment of the request; events cost nothing extra.
"""
