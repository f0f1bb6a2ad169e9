"""CacheEventStore as separate processes, with keys spread over them by consistent hashing (paper, section 3.4.1)."""
