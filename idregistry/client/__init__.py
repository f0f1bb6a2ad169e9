"""Client side of the registry: messages, connections, routing to shards, retries."""
