"""Object storage: what is under a URL, read, listed and written, with retries and costs in one place."""
