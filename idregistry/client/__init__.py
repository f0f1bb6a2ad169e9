"""Callers of a registry: messages on the wire, connections, routing to shards, tries until there is an answer."""
