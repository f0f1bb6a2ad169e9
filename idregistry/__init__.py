"""The IdRegistry: the replicated set of foreign event ids that have a verdict (paper, section 2)."""
