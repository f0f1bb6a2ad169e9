"""A running replica: queues, batches, proposals, opening and closing of shards, its gRPC services and its process."""
