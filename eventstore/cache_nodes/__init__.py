"""CacheEventStore as processes of its own, keys spread over them by consistent hashing (paper, section 3.4.1)."""
