"""Cache nodes: the cache in separate processes, with keys spread by consistent hashing (paper, section 3.4.1)."""
