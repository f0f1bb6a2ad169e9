"""A running replica: queues, batches, proposals, shards that come and go, its gRPC services and its process."""
