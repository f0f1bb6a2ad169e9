"""Object storage: reads, lists and writes objects at URLs, with retries and costs in one place."""
