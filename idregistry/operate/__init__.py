"""What operators do with a registry: inspect, transfer, reshard, back up, restore, replace a replica."""
