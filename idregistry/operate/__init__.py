"""Operators' commands for a registry: inspect, transfer, reshard, back up, restore, replace a replica."""
