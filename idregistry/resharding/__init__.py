"""Changes of the shards by event time, one at a time (rule 16 of the protocol; paper, section 2.2.2)."""
